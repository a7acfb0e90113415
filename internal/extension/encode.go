package extension

import (
	"encoding/json"
	"fmt"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// encode writes operations as encoding/json does, over what it wrote before.
func (g *generator) encode(operations []patch.Operation) ([]byte, error) {
	text := g.scratch[:0]
	text = append(text, '[')
	for i, operation := range operations {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(append(text, `{"op":"`...), operation.Op...)
		text = append(append(append(text, `","path":"`...), operation.Path...), '"')
		if operation.Value != nil {
			var err error
			if text, err = g.appendValue(append(text, `,"value":`...), operation.Value); err != nil {
				return nil, fmt.Errorf("writing a patch: %w", err)
			}
		}
		text = append(text, '}')
	}
	text = append(text, ']')
	g.scratch = text
	return text, nil
}

// appendValue appends the value of an operation. Managed files are written once for a request, and the setup script, which
// makes up most of a patch, once for all.
func (g *generator) appendValue(text []byte, value any) ([]byte, error) {
	switch v := value.(type) {
	case struct{}:
		return append(text, "{}"...), nil
	case string:
		if isPlain(v) {
			return append(append(append(text, '"'), v...), '"'), nil
		}
	case patch.File:
		file, err := g.file(v)
		return append(text, file...), err
	case []patch.File:
		return appendList(text, v, g)
	case []string:
		return appendList(text, v, g)
	}
	encoded, err := json.Marshal(value)
	return append(text, encoded...), err
}

// appendList appends a list of such values.
func appendList[T any](text []byte, list []T, g *generator) ([]byte, error) {
	text = append(text, '[')
	for i, entry := range list {
		if i > 0 {
			text = append(text, ',')
		}
		var err error
		if text, err = g.appendValue(text, entry); err != nil {
			return nil, err
		}
	}
	return append(text, ']'), nil
}

// isPlain reports whether encoding/json writes s as it is.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return true
}

// encodedFile is a managed file in JSON.
type encodedFile struct {
	file patch.File
	text []byte
}

func (g *generator) file(file patch.File) ([]byte, error) {
	for i := range g.files {
		if g.files[i].file == file {
			return g.files[i].text, nil
		}
	}
	text, found := []byte(nil), false
	if file.Path == contract.PathSetup {
		var known any
		if known, found = g.handlers.setups.Load(file); found {
			text, _ = known.([]byte)
		}
	}
	if !found {
		var err error
		if text, err = json.Marshal(file); err != nil {
			return nil, err
		}
		if file.Path == contract.PathSetup {
			g.handlers.setups.Store(file, text) // there is one for each output version
		}
	}
	if len(g.files) < maxSeen {
		g.files = append(g.files, encodedFile{file, text})
	}
	return text, nil
}
