package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestAudit_CountsByVerbAndResource(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "audit.log")
	text := `{"verb":"patch","objectRef":{"resource":"clusters","subresource":"status"}}
{"verb":"get","requestURI":"/apis"}
{"verb":"create","objectRef":{"resource":"events"}}
{"verb":"get","objectRef":{"resource":"secr`
	if err := os.WriteFile(log, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	a := audit{path: log}
	before, err := a.read()
	if err != nil || len(before) != 2 || before["patch clusters/status"] != 1 || before.writes() != 1 || before.total() != 2 {
		t.Errorf("got %v, %v", before, err)
	}
	if err := os.WriteFile(log, []byte(text+`ets"}}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if now, err := a.read(); err != nil || now.minus(before).total() != 1 || now.reads() != 1 {
		t.Errorf("the rest of a line is lost: got %v, %v", now, err)
	}
}
