package foreign_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/offline/foreign"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/proxyconfig"
)

// FuzzRead holds that what Read returns is a proxy Secret, and that it returns the same again.
func FuzzRead(f *testing.F) {
	files, err := filepath.Glob("../../cli/testdata/secret/*-*.*")
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
	f.Fuzz(func(t *testing.T, text []byte) {
		first, err := foreign.Read(text)
		again, errAgain := foreign.Read(text)
		if err != nil {
			if errAgain == nil || err.Error() != errAgain.Error() {
				t.Errorf("first %v, then %v", err, errAgain)
			}
			return
		}
		data := map[string][]byte{}
		for key, value := range first.Data {
			if data[key] = []byte(value); again.Data[key] != value {
				t.Errorf("key %s differs the second time", key)
			}
		}
		if _, err := proxyconfig.Parse(data); err != nil {
			t.Errorf("it is no proxy Secret: %v", err)
		}
	})
}
