package manifest

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
)

// JSON is YAML except for some characters and escapes. A document that is a JSON object has its value from
// encoding/json, as in kubectl, and its nodes from a text whose strings are written for YAML.

// jsonStart returns where JSON may begin in the source of a document: at a brace or bracket with nothing before it but
// spaces and, perhaps, a marker. It is -1 if there is no such place.
func jsonStart(src string) int {
	at := 0
	if line, full := lineBreak(src); isMarker(src[:line], "---") && isBlank(src[3:line]) {
		at = full
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

// jsonText is a string in JSON.
var jsonText = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// jsonValue returns the value of a string in JSON.
func jsonValue(text string) (s string) {
	_ = json.Unmarshal([]byte(text), &s) // It is valid.
	return s
}

// readJSON returns JSON with its strings as YAML reads them; lines stay. The offset is that of a string with half of a
// surrogate pair, for which a reader of JSON puts another character, or -1.
func readJSON(body string) (readable string, offset int) {
	var b strings.Builder
	at := 0
	for _, found := range jsonText.FindAllStringIndex(body, -1) {
		text := body[found[0]:found[1]]
		s := jsonValue(text)
		const other = "\uFFFD"
		written := strings.Contains(text, other) || strings.Contains(strings.ToLower(text), `\ufffd`)
		if strings.Contains(s, other) && !written {
			return "", found[0]
		}
		b.WriteString(body[at:found[0]] + strconv.QuoteToASCII(s))
		at = found[1]
	}
	return b.String() + body[at:], -1
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
