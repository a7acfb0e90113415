package kinds

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// Bootstrap has the fields of a KubeadmConfigSpec that decisions read, in v1beta1 or v1beta2.
type Bootstrap struct {
	patch.Spec

	// Alone reports that the spec holds nothing but its three lists, each with entries or absent: without the entries,
	// it is empty.
	Alone bool
	// BootCommands is how many bootCommands there are.
	BootCommands int
	// Hosts are those that the spec names.
	Hosts []Host
}

// registration has the fields of an initConfiguration or joinConfiguration that identify Windows nodes.
type registration struct {
	NodeRegistration struct {
		CRISocket        string `json:"criSocket"`
		KubeletExtraArgs args   `json:"kubeletExtraArgs"`
	} `json:"nodeRegistration"`
}

// args are name=value. They are a list in v1beta2, and a map in v1beta1.
type args []string

// UnmarshalJSON implements json.Unmarshaler.
func (a *args) UnmarshalJSON(text []byte) error {
	*a = nil
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		named := map[string]string{}
		err := Decode(text, &named)
		for name, value := range named {
			*a = append(*a, name+"="+value)
		}
		slices.Sort(*a)
		return err
	}
	var list []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	err := Decode(text, &list)
	for _, arg := range list {
		*a = append(*a, arg.Name+"="+arg.Value)
	}
	return err
}

// file is an entry of files.
type file struct {
	Path        string `json:"path"`
	Owner       string `json:"owner"`
	Permissions string `json:"permissions"`
	Content     string `json:"content"`
	ContentFrom struct {
		Secret patch.SecretKey `json:"secret"`
	} `json:"contentFrom"`
	// The other fields of the API: managed files have none of them.
	Encoding      string          `json:"encoding"`
	Append        json.RawMessage `json:"append"`
	ContentFormat json.RawMessage `json:"contentFormat"`
}

func (f *file) view() patch.File {
	return patch.File{
		Path: f.Path, Owner: f.Owner, Permissions: f.Permissions, Content: f.Content, ContentFrom: f.ContentFrom.Secret,
		Encoding: f.Encoding, Other: f.Encoding != "" || f.Append != nil || f.ContentFormat != nil,
	}
}

// maxIgnition is the longest additionalConfig that is read, in bytes: twice what the API accepts.
const maxIgnition = 64 << 10

// UnmarshalJSON implements json.Unmarshaler. With an error, b has the fields that could be read.
func (b *Bootstrap) UnmarshalJSON(text []byte) error {
	var members map[string]json.RawMessage
	if err := Decode(text, &members); err != nil {
		return err
	}
	*b = Bootstrap{}
	var problem error
	read := func(name string, into any) {
		if value, found := members[name]; found {
			if err := Decode(value, into); err != nil && problem == nil {
				problem = fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	for _, name := range []string{"initConfiguration", "joinConfiguration"} {
		of := registration{}
		read(name, &of)
		b.CRISockets = append(b.CRISockets, of.NodeRegistration.CRISocket)
		b.KubeletArgs = append(b.KubeletArgs, of.NodeRegistration.KubeletExtraArgs...)
	}
	var files []file
	read(string(patch.ListFiles), &files)
	read(string(patch.ListPre), &b.PreKubeadmCommands)
	read(string(patch.ListPost), &b.PostKubeadmCommands)
	read("format", &b.Format)
	var keys struct {
		EncryptionAlgorithm string `json:"encryptionAlgorithm"`
	}
	read("clusterConfiguration", &keys)
	b.ECDSA = strings.HasPrefix(keys.EncryptionAlgorithm, "ECDSA")
	var boot []json.RawMessage
	_ = Decode(members["bootCommands"], &boot) // the API server checks it
	b.BootCommands, b.Hosts = len(boot), hostsOf(members, files)
	var ignition, config map[string]map[string]any
	_ = Decode(members["ignition"], &ignition)
	if text, _ := ignition["containerLinuxConfig"]["additionalConfig"].(string); len(text) <= maxIgnition {
		_ = yaml.Unmarshal([]byte(text), &config) // of what cannot be read Cluster API makes no bootstrap data
	}
	b.Ignition = patch.IgnitionFiles(config["storage"]["files"], config["systemd"]["units"])
	for i := range files {
		b.Files = append(b.Files, files[i].view())
	}
	lists := 0
	for _, entries := range []int{len(b.Files), len(b.PreKubeadmCommands), len(b.PostKubeadmCommands)} {
		lists += min(entries, 1)
	}
	b.Alone = len(members) == lists
	return problem
}

// MarshalJSON returns an error: written whole, a spec would lose the fields that are not read.
func (b *Bootstrap) MarshalJSON() ([]byte, error) {
	return nil, errors.New("a bootstrap spec is patched, and never written whole")
}

// DeepCopy returns a copy.
func (b *Bootstrap) DeepCopy() *Bootstrap {
	if b == nil {
		return nil
	}
	c := new(Bootstrap)
	b.DeepCopyInto(c)
	return c
}

// DeepCopyInto copies b.
func (b *Bootstrap) DeepCopyInto(c *Bootstrap) {
	*c = *b
	c.Files, c.Hosts, c.Ignition = slices.Clone(b.Files), slices.Clone(b.Hosts), slices.Clone(b.Ignition)
	for _, list := range []*[]string{&c.PreKubeadmCommands, &c.PostKubeadmCommands, &c.CRISockets, &c.KubeletArgs} {
		*list = slices.Clone(*list)
	}
}

// View returns the spec on which decisions are made; that of nil is empty.
func (b *Bootstrap) View() patch.Spec {
	if b == nil {
		return patch.Spec{}
	}
	return b.Spec
}

// Decode reads JSON as client-go does: names are case-sensitive.
func Decode(text []byte, into any) error {
	return kjson.UnmarshalCaseSensitivePreserveInts(text, into) //nolint:wrapcheck // it names the field
}
