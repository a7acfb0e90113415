package foreign_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/foreign"
)

// FuzzRead holds that Read returns keys of a proxy Secret, and the same again.
func FuzzRead(f *testing.F) {
	files, err := filepath.Glob("../../../test/program/testdata/secret/*-*.*")
	if err != nil || len(files) == 0 {
		f.Fatal("no examples", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte("[Service]\nEnvironment=\"HTTP_PROXY=http://u:%%40\\\"@p:1\" 'NO_PROXY=a'\n"))
	f.Add([]byte("export http_proxy='http://u:$x@p:1' https_proxy=\"p:2\"; no_proxy=a\\\n,b # c\n"))
	f.Add([]byte("proxies: {http_proxy: p:1, pac: a, caCerts: [{name: a, b: c}]}\nno_proxy: {a: true, b: false}\n"))
	f.Add([]byte("[Manager]\nDefaultEnvironment=http_proxy=http_proxy=p:1 CONTAINERD_NO_PROXY=a SSL_CERT_FILE=b\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		first, err := foreign.Read(text)
		again, errAgain := foreign.Read(text)
		if err != nil {
			if errAgain == nil || err.Error() != errAgain.Error() {
				t.Errorf("first %v, then %v", err, errAgain)
			}
			return
		}
		if diff := cmp.Diff(first, again); diff != "" {
			t.Errorf("(-first +second)\n%s", diff)
		}
		for key, value := range first.Data {
			if !slices.Contains(contract.SecretKeys(), key) || value == "" {
				t.Errorf("key %s: %q", key, value)
			}
		}
	})
}
