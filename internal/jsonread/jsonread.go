// Package jsonread reads JSON in place: it walks over a text once, checks it on the way, and decodes only what its
// caller asks for. A request of Cluster API for a large topology has half a megabyte, of which a hook needs a few
// kilobytes.
//
// It accepts what encoding/json accepts (RFC 8259, at most 10,000 levels deep) and gives strings the values that
// encoding/json gives them. Names of members are compared exactly. Where a name occurs twice the caller sees both, and
// lets the last one count to agree with encoding/json.
package jsonread

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"unicode/utf8"
)

// maxDepth is the limit of encoding/json.
const maxDepth = 10000

// maxNames is how many different names of members a Reader keeps once. Almost all of an object occur again and again.
const maxNames = 64

// Reader walks over one text. Its methods read the next value; after an error they do nothing.
type Reader struct {
	text  []byte
	at    int
	depth int
	err   error
	// names are those of decoded members.
	names map[string]string
}

// New returns a Reader at the start of text, which must not be changed while the Reader and what it returned are in
// use.
func New(text []byte) *Reader { return &Reader{text: text} }

// End checks that nothing follows, and returns the first error of the walk. It names the position, counted in bytes
// from 0, and nothing of the text.
func (r *Reader) End() error {
	if r.err == nil {
		if r.blanks(); r.at < len(r.text) {
			r.fail("text after the end")
		}
	}
	return r.err
}

// HasMore reports whether JSON may have more values than a limit, by Count. Each takes a byte, so short texts are not
// looked at.
func HasMore(text []byte, values int) bool { return len(text) >= values && Count(text) > values }

// Count returns how many values JSON has at most: members, elements, objects and arrays. Decoded, a short one may take
// a hundred times its size.
func Count(text []byte) int {
	count := 1
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case ',', '{', '[':
			count++
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		}
	}
	return count
}

// Members reads an object and yields the name of each member, with the Reader at its value. A value that is not read is
// skipped. What is not an object is skipped as a whole, and yields nothing. Breaking off leaves the Reader unusable.
func (r *Reader) Members(yield func(name []byte) bool) { r.members(yield) }

// members is Members; with a nil yield it skips the object.
func (r *Reader) members(yield func(name []byte) bool) {
	if !r.enter('{') {
		return
	}
	if r.leave('}') {
		return
	}
	for {
		if r.blanks(); r.peek() != '"' {
			r.fail("expected a name")
			return
		}
		var name []byte
		if yield == nil {
			r.str()
		} else {
			name, _ = r.Bytes()
		}
		if r.blanks(); r.peek() != ':' {
			r.fail("expected a colon")
			return
		}
		r.at++
		if r.element(yield, name) || r.next('}') {
			return
		}
	}
}

// Elements reads an array and yields the index of each element, with the Reader at it, as Members does for objects.
func (r *Reader) Elements(yield func(index int) bool) {
	if !r.enter('[') {
		return
	}
	if r.leave(']') {
		return
	}
	for i := 0; ; i++ {
		r.blanks()
		start := r.at
		if !yield(i) {
			r.fail("reading was cancelled")
		}
		if r.at == start {
			r.Skip()
		}
		if r.err != nil || r.next(']') {
			return
		}
	}
}

// element yields one member and reports whether that was the end.
func (r *Reader) element(yield func([]byte) bool, name []byte) bool {
	r.blanks()
	start := r.at
	if r.err == nil && yield != nil && !yield(name) {
		r.fail("reading was cancelled")
	}
	if r.at == start {
		r.Skip()
	}
	return r.err != nil
}

// enter enters an object or array, or skips another value.
func (r *Reader) enter(bracket byte) bool {
	if r.blanks(); r.peek() != bracket {
		r.Skip()
		return false
	}
	r.at++
	if r.depth++; r.depth > maxDepth {
		r.fail("nested too deeply")
	}
	return r.err == nil
}

// leave leaves an object or array if this is its end.
func (r *Reader) leave(bracket byte) bool {
	if r.blanks(); r.peek() != bracket {
		return r.err != nil
	}
	r.at++
	r.depth--
	return true
}

// next skips the comma after an element, or leaves the object or array. It reports whether there is no next element.
func (r *Reader) next(bracket byte) bool {
	if r.leave(bracket) {
		return true
	}
	if r.peek() != ',' {
		r.fail("expected a comma or the end")
		return true
	}
	r.at++
	return false
}

// Kind returns the first byte of the next value: one of { [ " t f n, a digit or a minus; 0 at the end of the text.
func (r *Reader) Kind() byte {
	r.blanks()
	return r.peek()
}

// Raw reads a value and returns its text without surrounding spaces. It is nil after an error.
func (r *Reader) Raw() []byte {
	r.blanks()
	start := r.at
	if r.Skip(); r.err != nil {
		return nil
	}
	return r.text[start:r.at:r.at]
}

// RawLike is Raw. An object with the same text as like, which Raw has returned at the same depth, is not read again.
func (r *Reader) RawLike(like []byte) []byte {
	if r.Kind() == '{' && len(like) > 0 && bytes.HasPrefix(r.text[r.at:], like) {
		start := r.at
		r.at += len(like)
		return r.text[start:r.at:r.at]
	}
	return r.Raw()
}

// Text reads a string and reports whether the value was one. Another value is skipped and is the empty string.
func (r *Reader) Text() (string, bool) {
	inner, text, is := r.quoted()
	if inner != nil {
		return string(inner), is
	}
	return text, is
}

// Bytes is Text without a copy if the string needs no decoding. The result must not be changed.
func (r *Reader) Bytes() ([]byte, bool) {
	inner, text, is := r.quoted()
	if inner != nil {
		return inner, is
	}
	return []byte(text), is
}

// quoted reads a string. inner are its bytes if they need no decoding; otherwise it is nil, and text is the string.
func (r *Reader) quoted() (inner []byte, text string, is bool) {
	if r.Kind() != '"' {
		r.Skip()
		return nil, "", false
	}
	start := r.at
	plain := r.str()
	if r.err != nil {
		return nil, "", false
	}
	whole := r.text[start:r.at]
	if inner := whole[1 : len(whole)-1]; plain && utf8.Valid(inner) {
		return inner, "", true
	}
	var decoded string // on the heap
	if err := json.Unmarshal(whole, &decoded); err != nil {
		r.fail("not a string") // cannot be: str has checked it
	}
	return nil, decoded, r.err == nil
}

// Value decodes a value as encoding/json does. What it takes is bounded by Count.
func (r *Reader) Value() any {
	switch r.Kind() {
	case '{':
		object := map[string]any{}
		for name := range r.Members {
			key := r.once(name)
			object[key] = r.Value()
		}
		return object
	case '[':
		array := []any{}
		for range r.Elements {
			array = append(array, r.Value())
		}
		return array
	case '"':
		text, _ := r.Text()
		return text
	case 't', 'f':
		return len(r.Raw()) == len("true")
	case 'n':
		r.Skip()
		return nil
	default:
		number, err := strconv.ParseFloat(string(r.Raw()), 64)
		if err != nil && r.err == nil {
			r.err = errors.New("reading JSON: a number is out of range")
		}
		return number
	}
}

// once returns a name as the one string for all members that have it.
func (r *Reader) once(name []byte) string {
	if known, found := r.names[string(name)]; found {
		return known
	}
	key := string(name)
	if r.names == nil {
		r.names = make(map[string]string, maxNames)
	}
	if len(r.names) < maxNames {
		r.names[key] = key
	}
	return key
}

// Skip skips a value and checks it.
func (r *Reader) Skip() {
	switch r.Kind() {
	case '{':
		r.members(nil)
	case '[':
		r.Elements(func(int) bool { return true })
	case '"':
		r.str()
	case 't':
		r.literal("true")
	case 'f':
		r.literal("false")
	case 'n':
		r.literal("null")
	default:
		r.number()
	}
}

func (r *Reader) peek() byte {
	if r.at < len(r.text) && r.err == nil {
		return r.text[r.at]
	}
	return 0
}

func (r *Reader) blanks() {
	for r.at < len(r.text) {
		switch r.text[r.at] {
		case ' ', '\t', '\n', '\r':
			r.at++
		default:
			return
		}
	}
}

// fail keeps the first error.
func (r *Reader) fail(why string) {
	switch {
	case r.err != nil:
	case r.at >= len(r.text):
		r.err = errors.New("reading JSON: the text ends too early")
	default:
		r.err = fmt.Errorf("reading JSON at byte %d: %s", r.at, why)
	}
}

func (r *Reader) literal(word string) {
	if r.err == nil && bytes.HasPrefix(r.text[r.at:], []byte(word)) {
		r.at += len(word)
		return
	}
	r.fail("not a value")
}

// str skips a string. It reports whether the bytes between the quotes are its value, if they are valid UTF-8.
func (r *Reader) str() (plain bool) {
	if r.err != nil {
		return false
	}
	plain = true
	text := r.text
	for i := r.at + 1; i < len(text); i++ {
		if i += ordinary(text[i:]); i == len(text) {
			break
		}
		switch c := text[i]; {
		case c == '"':
			r.at = i + 1
			return plain
		case c == '\\':
			plain = false
			if i++; i == len(text) {
				continue
			}
			switch text[i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				for range 4 {
					if i++; i < len(text) && !isHex(text[i]) {
						r.at = i
						r.fail("not a hexadecimal digit")
						return false
					}
				}
			default:
				r.at = i
				r.fail("not an escape sequence")
				return false
			}
		case c < ' ':
			r.at = i
			r.fail("a control character in a string")
			return false
		}
	}
	r.at = len(text)
	r.fail("")
	return false
}

// ordinary returns how many bytes of text stand for themselves in a string before the first that does not: a quote, a
// backslash or a control character.
func ordinary(text []byte) int {
	const each, top = 0x0101010101010101, 0x8080808080808080 // the lowest bit of each byte, and the highest
	n := 0
	for ; n+8 <= len(text); n += 8 {
		word := binary.LittleEndian.Uint64(text[n:])
		quote, backslash := word^each*'"', word^each*'\\'
		// The highest bit of a byte that is too small, or equal to what was xored; above the first there may be others.
		found := ((word-each*' ')&^word | (quote-each)&^quote | (backslash-each)&^backslash) & top
		if found != 0 {
			return n + bits.TrailingZeros64(found)/8
		}
	}
	for n < len(text) && text[n] >= ' ' && text[n] != '"' && text[n] != '\\' {
		n++
	}
	return n
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func (r *Reader) number() {
	if r.peek() == '-' {
		r.at++
	}
	switch {
	case r.peek() == '0':
		r.at++
	case !r.digits():
		r.fail("not a value")
		return
	}
	if r.peek() == '.' {
		if r.at++; !r.digits() {
			r.fail("not a number")
			return
		}
	}
	if c := r.peek(); c == 'e' || c == 'E' {
		r.at++
		if c := r.peek(); c == '+' || c == '-' {
			r.at++
		}
		if !r.digits() {
			r.fail("not a number")
		}
	}
}

// digits skips digits and reports whether there was one.
func (r *Reader) digits() bool {
	start := r.at
	for c := r.peek(); '0' <= c && c <= '9'; c = r.peek() {
		r.at++
	}
	return r.at > start
}
