package manager

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
)

func TestVerbosity_StopsAtTheHighestLevel(t *testing.T) {
	t.Parallel()
	for _, format := range []string{formatText, formatJSON} {
		for asked, highest := range map[int]int{0: 0, 2: 2, 5: 5, 6: 5, 10: 5, 1000: 5} {
			var out bytes.Buffer
			log, level := Logging{Verbosity: asked, Format: format}.logger(&out)
			derived := []logr.Logger{log, log.WithName("client-go").WithValues("a", "b")}
			checkLevels(t, derived, highest)
			for _, refused := range []int{-1, 6, 8, 1000} {
				if _, err := level(strconv.Itoa(refused)); err == nil {
					t.Errorf("%s: level %d is taken", format, refused)
				}
			}
			checkLevels(t, derived, highest)
			if _, err := level("4\n"); err != nil {
				t.Error(err)
			}
			checkLevels(t, derived, 4)
		}
	}
}

func checkLevels(t *testing.T, loggers []logr.Logger, highest int) {
	t.Helper()
	for _, log := range loggers {
		for level := range 12 {
			if enabled := log.V(level).Enabled(); enabled != (level <= highest) {
				t.Errorf("level %d is enabled: %v, want those up to %d", level, enabled, highest)
			}
		}
	}
}

func TestLogging_WritesTheFieldsOfKubernetesAsJSON(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log, _ := Logging{Verbosity: 2, Format: formatJSON}.logger(&out)
	proxy, err := settings.ParseSecret(map[string][]byte{
		"httpProxy": []byte("http://proxy.example.com:3128"), "username": []byte("user"), "password": []byte("s3cr%\"'\\"),
	})
	if err != nil {
		t.Fatal(err)
	}
	object := &metav1.ObjectMeta{Namespace: "team-a", Name: "prod"}
	log.V(2).Info("Patching\n\"it\"", "Cluster", klog.KObj(object), "settings", proxy, "url", proxy.HTTPProxy)
	log.WithName("x").Error(errors.New("a\nb"), "Cannot")
	log.V(3).Info("unseen")
	log.Info("at rest")
	var lines []map[string]any
	for line := range strings.Lines(out.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		lines = append(lines, fields)
	}
	if len(lines) != 3 || lines[2]["v"] != 0.0 {
		t.Fatalf("%d lines:\n%s", len(lines), out.String())
	}
	info, failure := lines[0], lines[1]
	if ts, _ := info["ts"].(float64); ts < 1e12 || info["v"] != 2.0 || info["msg"] != "Patching\n\"it\"" ||
		!strings.Contains(info["caller"].(string), "log_test.go:") {
		t.Errorf("a line is %v", info)
	}
	if cluster, _ := info["Cluster"].(map[string]any); cluster["namespace"] != "team-a" || cluster["name"] != "prod" {
		t.Errorf("an object is %v", info["Cluster"])
	}
	if failure["err"] != "a\nb" || failure["v"] != nil || failure["logger"] != "x" {
		t.Errorf("an error is %v", failure)
	}
	if text := out.String(); strings.Contains(text, "s3cr") || !strings.Contains(text, "proxy.example.com") {
		t.Errorf("settings are not redacted: %s", text)
	}
}

func TestLogStart_NamesVersionCommitAndFlags(t *testing.T) {
	t.Parallel()
	for _, format := range []string{formatText, formatJSON} {
		var out bytes.Buffer
		log, _ := Logging{Format: format}.logger(&out)
		flags := pflag.NewFlagSet("x", pflag.ContinueOnError)
		groups := (&Options{}).Flags()
		for _, group := range groups.FlagSets {
			flags.AddFlagSet(group)
		}
		if err := flags.Parse([]string{"--namespace", "team-a", "--feature-gates=PriorityQueue=false"}); err != nil {
			t.Fatal(err)
		}
		logStart(logr.NewContext(t.Context(), log), "manager", flags)
		text := out.String()
		for _, want := range []string{
			"Starting manager", contract.CurrentBuild().Version, "commit", "--namespace=team-a", "--feature-gates=PriorityQueue=false",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("the first line lacks %q: %s", want, text)
			}
		}
		if strings.Contains(text, "--sync-period") || strings.Count(text, "\n") != 1 {
			t.Errorf("more than that: %s", text)
		}
	}
}
