package extension

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// Request has the fields of a GeneratePatchesRequest and a ValidateTopologyRequest that the handlers read. Values stay
// in JSON until they are needed.
type Request struct {
	Variables Variables `json:"variables"`
	Items     Items     `json:"items"`
}

// Item is one template of a request.
type Item struct {
	// UID is in JSON.
	UID json.RawMessage `json:"uid"`
	// Object is the template in JSON.
	Object    json.RawMessage `json:"object"`
	Variables Variables       `json:"variables"`
	// For is the object that refers to the template.
	For struct {
		Kind      string `json:"kind"`
		FieldPath string `json:"fieldPath"`
		Name      string `json:"name"`
	} `json:"holderReference"`
	// Holder is set by the caller.
	Holder Holder `json:"-"`
}

// Items are the templates of a request.
type Items []Item

// maxItems is how many templates a request may have. A Cluster of 1.5 MiB, which is what etcd takes, has fewer pools.
const maxItems = 20_000

var errMany = fmt.Errorf(
	"it has more than %d templates; split the pools of the Cluster among several Clusters", maxItems)

// UnmarshalJSON implements json.Unmarshaler.
func (all *Items) UnmarshalJSON(text []byte) error {
	*all = nil
	d := json.NewDecoder(bytes.NewReader(text))
	if start, err := d.Token(); err != nil || start == nil { // null
		return err //nolint:wrapcheck // it is checked JSON
	} else if start != json.Delim('[') {
		return errors.New("items is no list")
	}
	for d.More() {
		if len(*all) == maxItems {
			return errMany
		}
		var item Item
		if err := d.Decode(&item); err != nil {
			return err //nolint:wrapcheck // the decoder names the field
		}
		*all = append(*all, item)
	}
	return nil
}

// Variables are the two relevant variables of a list of variables, in JSON: that of the product, and the builtin one.
type Variables struct{ Own, Builtin json.RawMessage }

// builtins is the name of the builtin variable, BuiltinsName of Cluster API's runtime hooks.
const builtins = "builtin"

// UnmarshalJSON implements json.Unmarshaler.
func (v *Variables) UnmarshalJSON(text []byte) error {
	*v = Variables{}
	var list []struct {
		Name  string          `json:"name"`
		Value json.RawMessage `json:"value"`
	}
	if err := kinds.Decode(text, &list); err != nil {
		return err //nolint:wrapcheck // the decoder names the field
	}
	for _, variable := range list {
		switch variable.Name {
		case contract.VariableName:
			v.Own = variable.Value
		case builtins:
			v.Builtin = variable.Value
		}
	}
	return nil
}

// Decode reads the body of a request.
func Decode(body []byte) (Request, error) {
	var q Request
	if err := kinds.Decode(body, &q); err != nil {
		return Request{}, fmt.Errorf("reading the request: %w", err)
	}
	return q, nil
}

// Holders whose templates matter.
const (
	kindCluster       = "Cluster"
	fieldControlPlane = "spec.controlPlaneRef"
	fieldBootstrap    = "spec.template.spec.bootstrap.configRef"
	// fieldInfrastructure holds the machine template of a pool, which identifies Windows pools.
	fieldInfrastructure = "spec.template.spec.infrastructureRef"
)

// IsControlPlane reports whether i is the template of the control plane.
func (i *Item) IsControlPlane() bool {
	return i.For.FieldPath == fieldControlPlane && i.For.Kind == kindCluster
}

// IsPool reports whether i is the bootstrap template of a pool.
func (i *Item) IsPool() bool {
	return i.For.FieldPath == fieldBootstrap &&
		(i.For.Kind == intent.KindMachineDeployment || i.For.Kind == intent.KindMachinePool)
}

// PoolKey identifies a pool in a request.
type PoolKey struct{ kind, name string }

// Key returns the pool that i is a template of.
func (i *Item) Key() PoolKey { return PoolKey{i.For.Kind, i.For.Name} }

// AsksForWindows reports whether i is a machine template that asks for Windows. The pool of Key then is not patched.
func (i *Item) AsksForWindows() (bool, error) {
	// The fields are called os and osType; letters may be written as escape sequences. Other templates may be of any size.
	names := bytes.Contains(i.Object, []byte(`"os`)) || bytes.Contains(i.Object, []byte(`\u00`))
	if i.For.FieldPath != fieldInfrastructure || !names {
		return false, nil
	}
	if err := checkSize(i.Object); err != nil {
		return false, i.failed(err)
	}
	var object struct {
		Spec any `json:"spec"`
	}
	if err := kinds.Decode(i.Object, &object); err != nil {
		return false, i.failed(err)
	}
	return patch.WindowsField(object.Spec) != "", nil
}

// failed names the template that cannot be read.
func (i *Item) failed(err error) error {
	return fmt.Errorf("reading the %s of %s: %w", i.For.FieldPath, i.For.Kind, err)
}

// Metadata is that of a Cluster or of a part of its topology.
type Metadata struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// BuiltinCluster is the Cluster in the builtin variable.
type BuiltinCluster struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Metadata  `json:"metadata"`
}

// Holder is the object of a template in the builtin variable of an item.
type Holder struct {
	Version      string `json:"version"`
	TopologyName string `json:"topologyName"`
	Metadata     `json:"metadata"`
}

// DecodeBuiltin reads a builtin variable.
func DecodeBuiltin(raw json.RawMessage) (BuiltinCluster, Holder, error) {
	var builtin struct {
		Cluster           BuiltinCluster `json:"cluster"`
		ControlPlane      *Holder        `json:"controlPlane"`
		MachineDeployment *Holder        `json:"machineDeployment"`
		MachinePool       *Holder        `json:"machinePool"`
	}
	if raw == nil {
		return BuiltinCluster{}, Holder{}, nil
	}
	if err := kinds.Decode(raw, &builtin); err != nil {
		return BuiltinCluster{}, Holder{}, fmt.Errorf("reading variable %s: %w", builtins, err)
	}
	for _, holder := range []*Holder{builtin.ControlPlane, builtin.MachineDeployment, builtin.MachinePool} {
		if holder != nil {
			return builtin.Cluster, *holder, nil
		}
	}
	return builtin.Cluster, Holder{}, nil
}
