package publish_test

import (
	"bytes"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish"
)

func nodesInput(secret string, size int) publish.NodeFiles {
	return publish.NodeFiles{
		Cluster: "prod", Secret: secret, Key: []byte{1}, Image: "i", PullPolicy: "Always",
		Data: map[string][]byte{
			contract.KeyProxyEnv: []byte("HTTP_PROXY=\"http://u:s3cr@p:1\"\n"), contract.KeySetup: []byte("#!/bin/sh\n"),
			contract.KeyTrustedCABundle: bytes.Repeat([]byte("a"), size),
		},
	}
}

func TestOfNodes_NamesItsGeneratedSecretAndIsInNoSecret(t *testing.T) {
	t.Parallel()
	for _, generated := range []string{
		"prod-proxy-files", "prod.a.md.proxy-files", "prod." + strings.Repeat("x", 200) + ".mp.proxy-files",
	} {
		secret, found, err := publish.OfNodes(nodesInput(generated, 10))
		if err != nil || len(found) > 0 || secret.Kept || secret.Delivered == nil || secret.Delivered.Argument != generated {
			t.Fatalf("%s: %v, %v, %v", generated, secret, found, err)
		}
		objects, err := secret.Objects()
		if err != nil || len(objects) != 3 {
			t.Errorf("%s: %d objects, %v", generated, len(objects), err)
		}
	}
	if kept := publish.KeptNodes(); !kept.Kept || kept.Delivered == nil || kept.Data != nil {
		t.Errorf("kept is %v", kept)
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
		!strings.Contains(found[0].Message, "output nodes=prod-proxy-files: its objects would have 12") {
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
