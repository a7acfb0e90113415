package publish_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish/nodes"
)

func nodesInput(secret string, size int) nodes.Input {
	return nodes.Input{
		Cluster: "prod", Secret: secret, Key: bytes.Repeat([]byte{1}, nodes.KeyBytes), Image: "i", MaxUnavailable: "1",
		Data: map[string][]byte{
			contract.KeyProxyEnv: []byte("HTTP_PROXY=\"http://u:s3cr@p:1\"\n"), contract.KeySetup: []byte("#!/bin/sh\n"),
			contract.KeyTrustedCABundle: bytes.Repeat([]byte("a"), size),
		},
	}
}

func TestOfNodes_HasANameAndADigestForEachGeneratedSecret(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, generated := range []string{
		"prod-proxy-files", "prod.a.md.proxy-files", "prod.b.md.proxy-files", "prod." + strings.Repeat("x", 200) + ".mp.proxy-files",
	} {
		secret, found, err := publish.OfNodes(nodesInput(generated, 10))
		if err != nil || len(found) > 0 || secret.Kept || len(secret.Output) > 63 || seen[secret.Name] {
			t.Fatalf("%s: %v, %v, %v", generated, secret, found, err)
		}
		seen[secret.Name] = true
		if secret.Name != "prod-"+secret.Output {
			t.Errorf("%s: name %s, output %s", generated, secret.Name, secret.Output)
		}
		if got := publish.ClustersOf(secret.Name); !cmp.Equal(got, []string{"prod"}) {
			t.Errorf("%s may be wanted by %v", secret.Name, got)
		}
		o, known := publish.Delivered(map[string]string{contract.AnnotationOutput: secret.Delivered.String()})
		if !known || o != *secret.Delivered || o.Argument != generated || !o.IsDelivered() {
			t.Errorf("%s is read as %v, %t", secret.Delivered, o, known)
		}
		withdrawn, err := publish.Withdraw("prod", o)
		if err != nil || withdrawn.Name != secret.Name || strings.Contains(string(withdrawn.Data["nodes.yaml"]), "kind: Secret") ||
			!strings.Contains(string(secret.Data["nodes.yaml"]), string(withdrawn.Data["nodes.yaml"])) {
			t.Errorf("withdrawn: %v, %v", withdrawn, err)
		}
		if kept := publish.KeptNodes("prod", generated); kept.Name != secret.Name || !kept.Kept {
			t.Errorf("kept is %v", kept)
		}
		if _, usable := nodes.KeyOf(secret.Annotations); !usable || secret.Labels[contract.LabelFilesDigest] == "" {
			t.Errorf("annotations %v, labels %v", secret.Annotations, secret.Labels)
		}
	}
}

func TestOfNodes_KeepsWhatItCannotMake(t *testing.T) {
	t.Parallel()
	fits, found, err := publish.OfNodes(nodesInput("prod-proxy-files", 700_000))
	if err != nil || len(found) > 0 || fits.Kept || len(fits.Data["nodes.yaml"]) > corev1.MaxSecretSize {
		t.Errorf("%d bytes, %v, %v", len(fits.Data["nodes.yaml"]), found, err)
	}
	large, found, err := publish.OfNodes(nodesInput("prod-proxy-files", 900_000))
	if err != nil || len(found) != 1 || found[0].Reason != contract.ReasonTooLarge || !large.Kept || large.Data != nil ||
		!strings.Contains(found[0].Message, "output nodes=prod-proxy-files: Secret prod-proxy-nodes would hold 12") {
		t.Errorf("%v, %v, %v", large, found, err)
	}
	in := nodesInput("prod-proxy-files", 10)
	delete(in.Data, contract.KeySetup)
	if secret, found, err := publish.OfNodes(in); err != nil || len(found) > 0 || !secret.Kept {
		t.Errorf("without files: %v, %v, %v", secret, found, err)
	}
}

func TestParseList_CannotAskForNodes(t *testing.T) {
	t.Parallel()
	for _, list := range []string{"nodes", "nodes=prod-proxy-files"} {
		if asks, err := publish.ParseList(list); err == nil {
			t.Errorf("%s gives %v", list, asks)
		}
	}
}
