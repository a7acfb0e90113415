package manifest

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// JSON is YAML except for some characters and escapes. A document that is a JSON object has its value from
// encoding/json, as in kubectl, and its nodes from a text in which what the YAML parser does not know is disguised,
// character by character so that lines and columns stay.

// jsonStart returns where JSON may begin in the source of a document: at a brace or bracket with nothing before it but
// spaces and, perhaps, a marker. It is -1 if there is no such place.
func jsonStart(src string) int {
	at := 0
	if line, full := lineBreak(src); isMarker(src[:line], "---") && isBlank(src[3:line]) {
		at = full
		if strings.HasPrefix(src[at:], bom) {
			at += len(bom)
		}
	}
	at = len(src) - len(strings.TrimLeft(src[at:], " \t\r\n"))
	if at == len(src) || src[at] != '{' && src[at] != '[' {
		return -1
	}
	return at
}

// jsonBody returns the JSON object or list in the source of a document, "" if the source is not one of these.
func jsonBody(src string) string {
	if at := jsonStart(src); at >= 0 && json.Valid([]byte(src[at:])) {
		return src[at:]
	}
	return ""
}

// splitJSON cuts a chunk of several consecutive JSON values (JSON Lines) into one for each.
func splitJSON(c chunk) []chunk {
	start := jsonStart(c.src)
	if start < 0 {
		return []chunk{c}
	}
	var ends []int
	decoder := json.NewDecoder(strings.NewReader(c.src[start:]))
	for strings.Trim(c.src[start+int(decoder.InputOffset()):], " \t\r\n") != "" {
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return []chunk{c}
		}
		end := start + int(decoder.InputOffset())
		end = len(c.src) - len(strings.TrimLeft(c.src[end:], " \t"))
		content, full := lineBreak(c.src[end:])
		if content == 0 {
			end += full
		}
		ends = append(ends, end)
	}
	ends[len(ends)-1] = len(c.src)
	chunks := make([]chunk, len(ends))
	at := 0
	for i, end := range ends {
		chunks[i] = chunk{src: c.src[at:end], line: c.line, bom: c.bom && i == 0}
		for rest := chunks[i].src; rest != ""; {
			content, full := lineBreak(rest)
			if content < full {
				c.line++
			}
			rest = rest[full:]
		}
		at = end
	}
	return chunks
}

// Private characters, by which no key is distinguished from another one.
const (
	disguiseSurrogate = 0xE000 - 0xD800 // from half a surrogate pair to its replacement
	disguiseSlash     = 0xE800          // after an escaped slash
	disguiseControl   = 0xE900          // plus the lowest byte of a character that YAML does not allow
)

// disguise hides JSON-only syntax from the YAML parser.
func disguise(body string) string {
	var b strings.Builder
	for i := 0; i < len(body); {
		r, width := utf8.DecodeRuneInString(body[i:])
		switch {
		case r == '\\' && body[i+1] == '/':
			b.WriteString("/" + string(rune(disguiseSlash)))
			width = 2
		case r == '\\' && body[i+1] == 'u':
			width = 6
			half, _ := strconv.ParseUint(body[i+2:i+6], 16, 16)
			if utf16.IsSurrogate(rune(half)) {
				half += disguiseSurrogate
			}
			b.WriteString(`\u` + strconv.FormatUint(0x10000+half, 16)[1:])
		case r == '\\':
			b.WriteString(body[i : i+2])
			width = 2
		case isControl(r):
			b.WriteRune(disguiseControl + r&0xFF)
		default:
			b.WriteRune(r)
		}
		i += width
	}
	return b.String()
}

// reveal undoes disguise in the scalars of nodes.
func reveal(n *yaml.Node) {
	if strings.ContainsFunc(n.Value, func(r rune) bool { return r >= 0xE000 && r <= 0xE9FF }) {
		var half []uint16
		for _, r := range n.Value {
			switch {
			case r >= disguiseControl && r <= disguiseControl+0xFF:
				r -= disguiseControl
				if r >= 0xFE {
					r |= 0xFF00
				}
				half = utf16.AppendRune(half, r)
			case r >= 0xE000 && r < disguiseSlash:
				half = append(half, uint16(r-disguiseSurrogate))
			case r != disguiseSlash:
				half = utf16.AppendRune(half, r)
			}
		}
		n.Value = string(utf16.Decode(half))
	}
	for _, child := range n.Content {
		reveal(child)
	}
}

// decodeJSON returns the value of a JSON object, numbers as in decode.
func decodeJSON(body string) map[string]any {
	decoder := json.NewDecoder(strings.NewReader(body))
	decoder.UseNumber()
	var object map[string]any
	_ = decoder.Decode(&object) // It is valid.
	object, _ = normalize(object, false).(map[string]any)
	return object
}
