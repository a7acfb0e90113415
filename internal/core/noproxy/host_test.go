package noproxy_test

import (
	"errors"
	"testing"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/noproxy"
)

func TestHostASCII_ConvertsAsLookupsDo(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"Proxy_1.Example.": "Proxy_1.Example.", "": "", "%\"'$`": "%\"'$`", "xn--a": "xn--a",
		"Bücher.example": "xn--bcher-kva.example", "straße.example": "xn--strae-oqa.example", "例え。テスト": "xn--r8jz45g.xn--zckzah",
		"a_ü.example": "xn--a_-yka.example", "１.example": "1.example",
	} {
		if got, ok := noproxy.HostASCII(name); got != want || !ok {
			t.Errorf("%q: %q, %t, want %q", name, got, ok, want)
		}
	}
	for _, name := range []string{"\u00ad", "ü\u200d", "xn--ü", "אa1.ü", "\xff"} {
		if got, ok := noproxy.HostASCII(name); ok && !noproxy.IsASCII(got) {
			t.Errorf("%q: %q", name, got)
		}
	}
	if got, ok := noproxy.HostASCII("xn--zz-ü.xn--0"); ok {
		t.Errorf("an A-label that is none: %q", got)
	}
}

func TestSplitHost_ReadsPortsOfFiveDigits(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"1": "1", "0080": "80", "65535": "65535", "00001": "1"} {
		if _, got, _, err := noproxy.SplitHost("proxy:" + text); got != want || err != nil {
			t.Errorf("%q: %q, error %v, want %q", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "0", "65536", "000080", "+80", "-1", "8_0", "0x50", " 80", "80\n", "٨٠",
		"99999999999999999999",
	} {
		if _, got, _, err := noproxy.SplitHost("proxy:" + text); got != "" || !errors.Is(err, noproxy.ErrPort) {
			t.Errorf("%q: %q, error %v", text, got, err)
		}
	}
}

func TestSplitHost_SeparatesHostAndPort(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		host, port string
		bracketed  bool
		err        error
	}{
		"":                  {"", "", false, nil},
		"proxy":             {"proxy", "", false, nil},
		"proxy:0080":        {"proxy", "80", false, nil},
		":80":               {"", "80", false, nil},
		"[::1]":             {"::1", "", true, nil},
		"[::1]:3128":        {"::1", "3128", true, nil},
		"[%\"'$`]:1":        {"%\"'$`", "1", true, nil},
		"例え.テスト:1":          {"例え.テスト", "1", false, nil},
		"[::1":              {"", "", true, noproxy.ErrUnclosed},
		"[::1]3128":         {"::1", "", true, noproxy.ErrTrailing},
		"::1":               {"::1", "", false, noproxy.ErrColons},
		"a:1:2":             {"a:1:2", "", false, noproxy.ErrColons},
		"proxy:":            {"proxy", "", false, noproxy.ErrPort},
		"[::1]:65536":       {"::1", "", true, noproxy.ErrPort},
		"proxy:{{ .Port }}": {"proxy", "", false, noproxy.ErrPort},
	} {
		name, port, bracketed, err := noproxy.SplitHost(text)
		if name != want.host || port != want.port || bracketed != want.bracketed || !errors.Is(err, want.err) {
			t.Errorf("%q: %q, %q, %t, error %v", text, name, port, bracketed, err)
		}
	}
}
