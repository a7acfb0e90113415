// Package request reads what the handlers of the runtime hooks need of a request, without decoding the rest of it. A
// request is large, and what it holds is hostile: what is decoded is bounded.
package request

import (
	"bytes"
	"fmt"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/jsonread"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// Request is what the handlers read of a GeneratePatchesRequest and of a ValidateTopologyRequest. Values stay in JSON
// until they are needed.
type Request struct {
	Variables Variables
	Items     []Item
}

// Item is one template of a request.
type Item struct {
	// UID is in JSON.
	UID []byte
	// Object is the template in JSON.
	Object    []byte
	Variables Variables
	// Holder is set by the caller.
	Holder Holder
	// HolderKind is the kind of the object that the template is for, or "" if no template of it matters.
	HolderKind string

	fieldPath  string // "" for templates that are not patched
	holderName []byte // in JSON
}

// Variables are the two relevant variables of a list of variables, in JSON: that of the product, and the builtin one.
type Variables struct{ Own, Builtin []byte }

// builtins is the name of the builtin variable, BuiltinsName of Cluster API's runtime hooks.
const builtins = "builtin"

func (v *Variables) set(name, value []byte) {
	switch string(name) {
	case contract.VariableName:
		v.Own = value
	case builtins:
		v.Builtin = value
	}
}

// maxItems is how many templates a request may have. A Cluster of 1.5 MiB, which is what etcd takes, has fewer pools.
const maxItems = 20_000

// smallItem is about the size of a template of a pool with its variables, in bytes.
const smallItem = 1500

// Decode reads the body of a request. It agrees with encoding/json about every body that Cluster API writes.
func Decode(body []byte) (Request, error) {
	var (
		q    Request
		many bool
	)
	r := jsonread.New(body)
	for name := range r.Members {
		switch string(name) {
		case "variables":
			q.Variables = decodeVariables(r)
		case "items":
			if q.Items = q.Items[:0]; q.Items == nil {
				q.Items = make([]Item, 0, min(len(body)/smallItem, maxItems))
			}
			for i := range r.Elements {
				if many = i == maxItems; many {
					break
				}
				var like []byte // templates of pools alternate
				if i > 1 {
					like = q.Items[i-2].Object
				}
				q.Items = append(q.Items, decodeItem(r, like))
			}
		}
	}
	if many {
		return Request{},
			fmt.Errorf("reading the request: it has more than %d templates; split the pools of the Cluster among several "+
				"Clusters", maxItems)
	}
	if err := r.End(); err != nil {
		return Request{}, fmt.Errorf("reading the request: %w", err)
	}
	return q, nil
}

// decodeItem reads a template that may be like another.
func decodeItem(r *jsonread.Reader, like []byte) Item {
	var i Item
	for name := range r.Members {
		switch string(name) {
		case "uid":
			if i.UID = nil; r.Kind() == '"' {
				i.UID = r.Raw()
			}
		case "holderReference":
			for name := range r.Members {
				switch string(name) {
				case "kind":
					kind, _ := r.Bytes()
					i.HolderKind = known(kind, kindCluster, intent.KindMachineDeployment, intent.KindMachinePool)
				case "fieldPath":
					field, _ := r.Bytes()
					i.fieldPath = known(field, fieldControlPlane, fieldBootstrap, fieldInfrastructure)
				case "name":
					i.holderName = r.Raw()
				}
			}
		case "object":
			i.Object = r.RawLike(like)
		case "variables":
			i.Variables = decodeVariables(r)
		}
	}
	return i
}

// known returns the string that equals text, or "".
func known(text []byte, some ...string) string {
	for _, s := range some {
		if string(text) == s {
			return s
		}
	}
	return ""
}

func decodeVariables(r *jsonread.Reader) Variables {
	var v Variables
	for range r.Elements {
		var name, value []byte
		for member := range r.Members {
			switch string(member) {
			case "name":
				name, _ = r.Bytes()
			case "value":
				value = r.Raw()
			}
		}
		v.set(name, value)
	}
	return v
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
	return i.fieldPath == fieldControlPlane && i.HolderKind == kindCluster
}

// IsPool reports whether i is the bootstrap template of a pool.
func (i *Item) IsPool() bool {
	return i.fieldPath == fieldBootstrap &&
		(i.HolderKind == intent.KindMachineDeployment || i.HolderKind == intent.KindMachinePool)
}

// PoolKey identifies a pool in a request.
type PoolKey struct{ kind, name string }

// Key returns the pool that i is a template of.
func (i *Item) Key() PoolKey { return PoolKey{i.HolderKind, string(i.holderName)} }

// AsksForWindows reports whether i is a machine template that asks for Windows. The pool of Key then is not patched.
func (i *Item) AsksForWindows() (bool, error) {
	// The fields are called os and osType; letters may be written as escape sequences.
	if i.fieldPath != fieldInfrastructure || !bytes.Contains(i.Object, []byte(`"os`)) &&
		!bytes.Contains(i.Object, []byte(`\u00`)) {
		return false, nil
	}
	if err := checkSize(i.Object); err != nil {
		return false, i.failed(err)
	}
	object, _ := jsonread.New(i.Object).Value().(map[string]any)
	return patch.WindowsField(object["spec"]) != "", nil
}

// failed names the template that cannot be read.
func (i *Item) failed(err error) error {
	return fmt.Errorf("reading the %s of %s: %w", i.fieldPath, i.HolderKind, err)
}

// Cluster is what the builtin variable says about the Cluster.
type Cluster struct {
	Namespace, Name     string
	Labels, Annotations map[string]string
}

// Holder is what the builtin variable of an item says about the object that the template is for.
type Holder struct {
	Version, TopologyName string
	Annotations           map[string]string
}

// DecodeBuiltin reads a builtin variable. The text must have been checked; otherwise the result is what could be read.
func DecodeBuiltin(raw []byte) (Cluster, Holder) {
	var (
		c Cluster
		h Holder
	)
	if raw == nil {
		return c, h
	}
	r := jsonread.New(raw)
	for name := range r.Members {
		switch string(name) {
		case "cluster":
			c = decodeCluster(r)
		case "controlPlane", "machineDeployment", "machinePool":
			h = decodeHolder(r)
		}
	}
	return c, h
}

func decodeCluster(r *jsonread.Reader) Cluster {
	var c Cluster
	for name := range r.Members {
		switch string(name) {
		case "name":
			c.Name, _ = r.Text()
		case "namespace":
			c.Namespace, _ = r.Text()
		case "metadata":
			c.Labels, c.Annotations = decodeMetadata(r)
		}
	}
	return c
}

func decodeHolder(r *jsonread.Reader) Holder {
	var h Holder
	for name := range r.Members {
		switch string(name) {
		case "version":
			h.Version, _ = r.Text()
		case "topologyName":
			h.TopologyName, _ = r.Text()
		case "metadata":
			_, h.Annotations = decodeMetadata(r)
		}
	}
	return h
}

// decodeMetadata keeps only the labels and annotations of this product.
func decodeMetadata(r *jsonread.Reader) (labels, annotations map[string]string) {
	for name := range r.Members {
		switch string(name) {
		case "labels":
			labels = decodeOwn(r)
		case "annotations":
			annotations = decodeOwn(r)
		}
	}
	return labels, annotations
}

func decodeOwn(r *jsonread.Reader) map[string]string {
	var read map[string]string
	for name := range r.Members {
		if len(name) <= len(contract.Domain) || string(name[:len(contract.Domain)]) != contract.Domain {
			continue
		}
		if read == nil {
			read = map[string]string{}
		}
		key := string(name)
		read[key], _ = r.Text()
	}
	return read
}
