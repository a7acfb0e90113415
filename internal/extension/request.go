package extension

import (
	"fmt"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/jsonread"
)

// request is what the handlers read of a GeneratePatchesRequest and of a ValidateTopologyRequest. Values stay in JSON
// until they are needed.
type request struct {
	variables variables
	items     []item
}

// item is one template of a request.
type item struct {
	uid []byte // in JSON
	// holderKind and fieldPath are empty for templates that are not patched.
	holderKind, fieldPath string
	holderName            []byte // in JSON
	object                []byte
	variables             variables
	holder                holder // once sourceOf has read it
}

// variables are the two relevant variables of a list of variables.
type variables struct{ own, builtin []byte }

func (v *variables) set(name, value []byte) {
	switch string(name) {
	case contract.VariableName:
		v.own = value
	case runtimehooksv1.BuiltinsName:
		v.builtin = value
	}
}

// decodeRequest reads the body of a request. It agrees with encoding/json about every body that Cluster API writes.
func decodeRequest(body []byte) (request, error) {
	var (
		q    request
		many bool
	)
	r := jsonread.New(body)
	for name := range r.Members {
		switch string(name) {
		case "variables":
			q.variables = decodeVariables(r)
		case "items":
			q.items = q.items[:0]
			for i := range r.Elements {
				if many = i == maxItems; many {
					break
				}
				q.items = append(q.items, decodeItem(r))
			}
		}
	}
	if many {
		return request{},
			fmt.Errorf("reading the request: it has more than %d templates; split the pools of the Cluster among several "+
				"Clusters", maxItems)
	}
	if err := r.End(); err != nil {
		return request{}, fmt.Errorf("reading the request: %w", err)
	}
	return q, nil
}

func decodeItem(r *jsonread.Reader) item {
	var i item
	for name := range r.Members {
		switch string(name) {
		case "uid":
			if i.uid = nil; r.Kind() == '"' {
				i.uid = r.Raw()
			}
		case "holderReference":
			for name := range r.Members {
				switch string(name) {
				case "kind":
					kind, _ := r.Bytes()
					i.holderKind = known(kind, kindCluster, intent.KindMachineDeployment, intent.KindMachinePool)
				case "fieldPath":
					field, _ := r.Bytes()
					i.fieldPath = known(field, fieldControlPlane, fieldBootstrap, fieldInfrastructure)
				case "name":
					i.holderName = r.Raw()
				}
			}
		case "object":
			i.object = r.Raw()
		case "variables":
			i.variables = decodeVariables(r)
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

func decodeVariables(r *jsonread.Reader) variables {
	var v variables
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

// decodeNewCluster reads the body of a BeforeClusterCreateRequest.
func decodeNewCluster(body []byte) (newCluster, error) {
	var q newCluster
	r := jsonread.New(body)
	for name := range r.Members {
		if string(name) != "cluster" {
			continue
		}
		for name := range r.Members {
			if string(name) != "metadata" {
				continue
			}
			for name := range r.Members {
				switch string(name) {
				case "name":
					q.name, _ = r.Text()
				case "namespace":
					q.namespace, _ = r.Text()
				case "creationTimestamp":
					text, _ := r.Text()
					q.created, _ = time.Parse(time.RFC3339, text)
				}
			}
		}
	}
	if err := r.End(); err != nil {
		return newCluster{}, fmt.Errorf("reading the request: %w", err)
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

// isControlPlane reports whether i is the template of the control plane.
func (i *item) isControlPlane() bool {
	return i.fieldPath == fieldControlPlane && i.holderKind == kindCluster
}

// isPool reports whether i is the bootstrap template of a pool.
func (i *item) isPool() bool {
	return i.fieldPath == fieldBootstrap &&
		(i.holderKind == intent.KindMachineDeployment || i.holderKind == intent.KindMachinePool)
}

// poolKey identifies a pool in a request.
type poolKey struct{ kind, name string }

// key returns the pool that i is a template of.
func (i *item) key() poolKey { return poolKey{i.holderKind, string(i.holderName)} }

// cluster is what the builtin variable says about the Cluster.
type cluster struct {
	namespace, name     string
	labels, annotations map[string]string
}

// holder is what the builtin variable of an item says about the object that the template is for.
type holder struct {
	version, topologyName string
	annotations           map[string]string
}

// decodeBuiltin reads a builtin variable. The text must have been checked; otherwise the result is what could be read.
func decodeBuiltin(raw []byte) (cluster, holder) {
	var (
		c cluster
		h holder
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

func decodeCluster(r *jsonread.Reader) cluster {
	var c cluster
	for name := range r.Members {
		switch string(name) {
		case "name":
			c.name, _ = r.Text()
		case "namespace":
			c.namespace, _ = r.Text()
		case "metadata":
			c.labels, c.annotations = decodeMetadata(r)
		}
	}
	return c
}

func decodeHolder(r *jsonread.Reader) holder {
	var h holder
	for name := range r.Members {
		switch string(name) {
		case "version":
			h.version, _ = r.Text()
		case "topologyName":
			h.topologyName, _ = r.Text()
		case "metadata":
			_, h.annotations = decodeMetadata(r)
		}
	}
	return h
}

// decodeMetadata keeps only the labels and annotations of this product, and the label of a scope.
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
		own := len(name) > len(contract.Domain) && string(name[:len(contract.Domain)]) == contract.Domain
		if !own && string(name) != clusterv1.WatchLabel {
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
