package kinds

import "strings"

// Reference refers to an object in the namespace of the object that has it.
type Reference struct {
	APIGroup string `json:"apiGroup,omitempty"`
	Kind     string `json:"kind,omitempty"`
	Name     string `json:"name,omitempty"`
}

// UnmarshalJSON implements json.Unmarshaler. Version v1beta1 has apiVersion in place of apiGroup.
func (r *Reference) UnmarshalJSON(text []byte) error {
	read := struct {
		APIGroup   string `json:"apiGroup"`
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Name       string `json:"name"`
	}{}
	if err := Decode(text, &read); err != nil {
		return err
	}
	*r = Reference{read.APIGroup, read.Kind, read.Name}
	if r.APIGroup == "" {
		r.APIGroup, _, _ = strings.Cut(read.APIVersion, "/")
	}
	return nil
}

// Presence reports whether a field is there, whatever it holds.
type Presence bool

// UnmarshalJSON implements json.Unmarshaler.
func (p *Presence) UnmarshalJSON([]byte) error {
	*p = true
	return nil
}
