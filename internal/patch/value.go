package patch

import (
	"maps"
	"slices"
)

func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

func mapOf(value any) map[string]any { m, _ := value.(map[string]any); return m }
func listOf(value any) []any         { l, _ := value.([]any); return l }
func stringOf(value any) string      { s, _ := value.(string); return s }

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }
