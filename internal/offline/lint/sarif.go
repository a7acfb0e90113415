package lint

import (
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
)

// The part of SARIF 2.1.0 (OASIS, Static Analysis Results Interchange Format) that lint uses. Numbers in comments are
// sections of the standard.
type (
	sarifLog struct { // 3.13
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct { // 3.14
		Tool       sarifTool     `json:"tool"`
		ColumnKind string        `json:"columnKind"`
		Results    []sarifResult `json:"results"`
	}
	sarifTool struct { // 3.18
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct { // 3.19
		Name           string      `json:"name"`
		Version        string      `json:"version"`
		InformationURI string      `json:"informationUri"`
		Rules          []sarifRule `json:"rules"`
	}
	sarifRule struct { // 3.49
		ID      string `json:"id"`
		HelpURI string `json:"helpUri"`
	}
	sarifResult struct { // 3.27
		RuleID    string          `json:"ruleId"`
		RuleIndex int             `json:"ruleIndex"`
		Level     string          `json:"level"`
		Message   sarifMessage    `json:"message"`
		Locations []sarifLocation `json:"locations"`
	}
	sarifMessage struct { // 3.11
		Text string `json:"text"`
	}
	sarifLocation struct { // 3.28
		Physical sarifPhysical  `json:"physicalLocation"`
		Logical  []sarifLogical `json:"logicalLocations"`
	}
	sarifPhysical struct { // 3.29
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   sarifRegion   `json:"region"`
	}
	sarifArtifact struct { // 3.4
		URI string `json:"uri"`
	}
	sarifRegion struct { // 3.30
		StartLine int `json:"startLine"`
	}
	sarifLogical struct { // 3.33
		FullyQualifiedName string `json:"fullyQualifiedName"`
		Kind               string `json:"kind"`
	}
)

const projectURL = "https://github.com/capi-proxy-patcher/capi-proxy-patcher"

// SARIF returns the findings as a SARIF 2.1.0 log for code review tools, ended by a line end. version is that of the
// program. A rejection is an error there, a warning a warning and a note a note; files are relative URIs if their names
// are.
func (r Report) SARIF(version string) ([]byte, error) {
	text, err := json.MarshalIndent(newSARIF(r.Findings, version), "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding SARIF: %w", err)
	}
	return append(text, '\n'), nil
}

// newSARIF returns findings in the form that code review tools read. A rule is a code, in order of appearance.
func newSARIF(findings []Row, version string) sarifLog {
	run := sarifRun{
		Tool: sarifTool{Driver: sarifDriver{
			Name: contract.Name, Version: version, InformationURI: projectURL, Rules: []sarifRule{},
		}},
		ColumnKind: "utf16CodeUnits",
		Results:    []sarifResult{},
	}
	for _, f := range findings {
		rules := &run.Tool.Driver.Rules
		index := slices.IndexFunc(*rules, func(r sarifRule) bool { return r.ID == string(f.Code) })
		if index < 0 {
			index = len(*rules)
			*rules = append(*rules, sarifRule{ID: string(f.Code), HelpURI: finding.Link(string(f.Code))})
		}
		text := f.Object + ": "
		if f.Where != "" {
			text = f.Object + ", " + f.Where + ": "
		}
		text += f.Message
		if f.Fix != "" {
			text += "; " + f.Fix
		}
		run.Results = append(run.Results, sarifResult{
			RuleID: string(f.Code), RuleIndex: index, Level: sarifLevel(f.Level), Message: sarifMessage{text},
			Locations: []sarifLocation{{
				Physical: sarifPhysical{Artifact: sarifArtifact{artifactURI(f.File)}, Region: sarifRegion{f.Line}},
				Logical:  []sarifLogical{{FullyQualifiedName: f.Object, Kind: "object"}},
			}},
		})
	}
	return sarifLog{Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0", Runs: []sarifRun{run}}
}

func sarifLevel(l Level) string {
	switch l {
	case Rejection:
		return "error"
	case Warning:
		return "warning"
	default:
		return "note"
	}
}

// artifactURI returns a file name as a URI, relative if the name is.
func artifactURI(file string) string {
	u := url.URL{Path: filepath.ToSlash(file)}
	if filepath.IsAbs(file) {
		u.Scheme = "file"
	}
	return u.String()
}
