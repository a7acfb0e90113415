package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/ocilayout"
)

// The types are those of SPDX 2.3 in JSON that are used here.
type (
	spdxDocument struct {
		Version       string             `json:"spdxVersion"`
		License       string             `json:"dataLicense"`
		ID            string             `json:"SPDXID"`
		Name          string             `json:"name"`
		Namespace     string             `json:"documentNamespace"`
		Creation      spdxCreation       `json:"creationInfo"`
		Packages      []spdxPackage      `json:"packages"`
		Files         []spdxFile         `json:"files"`
		Relationships []spdxRelationship `json:"relationships"`
	}
	spdxCreation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		Name             string          `json:"name"`
		ID               string          `json:"SPDXID"`
		Version          string          `json:"versionInfo"`
		DownloadLocation string          `json:"downloadLocation"`
		FilesAnalyzed    bool            `json:"filesAnalyzed"`
		LicenseConcluded string          `json:"licenseConcluded"`
		LicenseDeclared  string          `json:"licenseDeclared"`
		Copyright        string          `json:"copyrightText"`
		Purpose          string          `json:"primaryPackagePurpose,omitempty"`
		Checksums        []spdxChecksum  `json:"checksums,omitempty"`
		Comment          string          `json:"comment,omitempty"`
		References       []spdxReference `json:"externalRefs,omitempty"`
	}
	spdxChecksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	spdxReference struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	spdxFile struct {
		Name             string         `json:"fileName"`
		ID               string         `json:"SPDXID"`
		Types            []string       `json:"fileTypes"`
		Checksums        []spdxChecksum `json:"checksums"`
		LicenseConcluded string         `json:"licenseConcluded"`
		Copyright        string         `json:"copyrightText"`
	}
	spdxRelationship struct {
		Element string `json:"spdxElementId"`
		Type    string `json:"relationshipType"`
		Related string `json:"relatedSpdxElement"`
	}
)

const (
	noAssertion = "NOASSERTION"
	imageID     = "SPDXRef-image"
)

// materials writes the modules of the programs of the image, as Go has recorded them.
func (r release) materials() error {
	image, err := ocilayout.Read(r.layout)
	if err != nil {
		return err
	}
	document := spdxDocument{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT",
		Name:      provider + "-" + r.version,
		Namespace: "https://capi-proxy-patcher.io/spdx/" + r.version + "/" + strings.TrimPrefix(image.Digest, "sha256:"),
		Creation: spdxCreation{
			Created:  r.created.Format(time.RFC3339),
			Creators: []string{"Tool: capi-proxy-patcher-release"},
		},
		Packages: []spdxPackage{{
			Name: r.image, ID: imageID, Version: r.version, DownloadLocation: noAssertion, Purpose: "CONTAINER",
			LicenseConcluded: "Apache-2.0", LicenseDeclared: "Apache-2.0", Copyright: noAssertion,
			Comment:   "Commit " + r.revision,
			Checksums: []spdxChecksum{{"SHA256", strings.TrimPrefix(image.Digest, "sha256:")}},
		}},
		Relationships: []spdxRelationship{{"SPDXRef-DOCUMENT", "DESCRIBES", imageID}},
	}
	modules := map[string]*debug.Module{}
	for _, program := range image.Programs {
		info, err := buildinfo.Read(bytes.NewReader(program.Content))
		if err != nil {
			return fmt.Errorf("reading the modules of the program for %s: %w", program.Platform, err)
		}
		id := "SPDXRef-program-" + spdxName(program.Platform)
		document.Files = append(document.Files, spdxFile{
			Name: "./capi-proxy-patcher (" + program.Platform + ")", ID: id, Types: []string{"BINARY"},
			LicenseConcluded: "Apache-2.0", Copyright: noAssertion,
			Checksums: []spdxChecksum{{"SHA256", fmt.Sprintf("%x", sha256.Sum256(program.Content))}},
		})
		document.Relationships = append(document.Relationships, spdxRelationship{imageID, "CONTAINS", id})
		modules["stdlib"] = &debug.Module{Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")}
		for _, module := range info.Deps {
			if module.Replace != nil {
				module = module.Replace
			}
			modules[module.Path+"@"+module.Version] = module
		}
	}
	for _, key := range slices.Sorted(maps.Keys(modules)) {
		document.add(modules[key])
	}
	text, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		return err
	}
	return r.file("capi-proxy-patcher.spdx.json", append(text, '\n'))
}

// add adds a module of Go that the image contains.
func (d *spdxDocument) add(module *debug.Module) {
	p := spdxPackage{
		Name: module.Path, ID: "SPDXRef-module-" + spdxName(module.Path+"-"+module.Version), Version: module.Version,
		DownloadLocation: noAssertion, LicenseConcluded: noAssertion, LicenseDeclared: noAssertion, Copyright: noAssertion,
		References: []spdxReference{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + module.Path + "@" + module.Version}},
	}
	if module.Sum != "" {
		p.Comment = "go.sum " + module.Sum
	}
	d.Packages = append(d.Packages, p)
	d.Relationships = append(d.Relationships, spdxRelationship{imageID, "CONTAINS", p.ID})
}

// spdxName returns an identifier of letters, digits, dots and hyphens.
func spdxName(text string) string {
	return regexp.MustCompile(`[^A-Za-z0-9.-]+`).ReplaceAllString(text, "-")
}
