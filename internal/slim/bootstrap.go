package slim

import (
	"reflect"
	"unique"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// bootstrap is what patch.SpecOf reads of a bootstrap spec, except for the contents of files that are not managed. Most
// files, commands and arguments are those of other Clusters, too: each is kept once.
type bootstrap struct {
	files      []entry
	pre, post  []unique.Handle[string]
	format     bootstrapv1.Format
	init, join registration
	// others is set if the whole spec has more than files and commands, and none of what is kept shows it.
	others bool
}

// entry is an entry of files. The Secret that it comes from is the Cluster's own; the rest is not.
type entry struct {
	file   unique.Handle[file]
	secret string
}

// file is the rest of an entry; append is its field of that name.
type file struct {
	bootstrapv1.File

	append flag
}

// flag is an optional boolean that can be compared.
type flag struct{ set, value bool }

type registration struct {
	socket string
	args   []unique.Handle[arg]
}

type arg struct {
	name, value string
	set         bool
}

func bootstrapOf(whole *bootstrapv1.KubeadmConfigSpec) bootstrap {
	view, i := patch.SpecOf(&bootstrapv1.KubeadmConfigSpec{Files: whole.Files}).Files, 0
	kept := bootstrap{
		files: each(whole.Files, func(f bootstrapv1.File) entry {
			if !patch.IsManagedFile(view[i]) {
				f.Content = ""
			}
			i++
			secret, kept := once(f.ContentFrom.Secret.Name), file{File: f}
			kept.ContentFrom.Secret.Name = ""
			if f.Append != nil {
				kept.append, kept.Append = flag{set: true, value: *f.Append}, nil
			}
			return entry{unique.Make(kept), secret}
		}),
		pre: each(whole.PreKubeadmCommands, unique.Make), post: each(whole.PostKubeadmCommands, unique.Make),
		format: once(whole.Format),
		init:   registrationOf(&whole.InitConfiguration.NodeRegistration),
		join:   registrationOf(&whole.JoinConfiguration.NodeRegistration),
	}
	kept.others = kept.format == "" && kept.init.isEmpty() && kept.join.isEmpty() && hasOthers(*whole)
	return kept
}

func (b *bootstrap) whole() bootstrapv1.KubeadmConfigSpec {
	spec := bootstrapv1.KubeadmConfigSpec{
		Files: each(b.files, func(e entry) bootstrapv1.File {
			f := e.file.Value()
			f.ContentFrom.Secret.Name = e.secret
			if f.append.set {
				f.Append = new(f.append.value)
			}
			return f.File
		}),
		PreKubeadmCommands:  each(b.pre, unique.Handle[string].Value),
		PostKubeadmCommands: each(b.post, unique.Handle[string].Value),
		Format:              b.format,
	}
	spec.InitConfiguration.NodeRegistration, spec.JoinConfiguration.NodeRegistration = b.init.whole(), b.join.whole()
	if b.others {
		spec.Verbosity = new(int32) // not empty
	}
	return spec
}

// hasOthers reports whether a spec has more than files and commands.
func hasOthers(spec bootstrapv1.KubeadmConfigSpec) bool {
	spec.Files, spec.PreKubeadmCommands, spec.PostKubeadmCommands = nil, nil, nil
	return !reflect.ValueOf(&spec).Elem().IsZero()
}

func (r *registration) isEmpty() bool { return r.socket == "" && r.args == nil }

func registrationOf(whole *bootstrapv1.NodeRegistrationOptions) registration {
	return registration{
		socket: once(whole.CRISocket),
		args: each(whole.KubeletExtraArgs, func(a bootstrapv1.Arg) unique.Handle[arg] {
			if a.Value == nil {
				return unique.Make(arg{name: a.Name})
			}
			return unique.Make(arg{name: a.Name, value: *a.Value, set: true})
		}),
	}
}

func (r *registration) whole() bootstrapv1.NodeRegistrationOptions {
	return bootstrapv1.NodeRegistrationOptions{
		CRISocket: r.socket,
		KubeletExtraArgs: each(r.args, func(kept unique.Handle[arg]) bootstrapv1.Arg {
			a := kept.Value()
			if !a.set {
				return bootstrapv1.Arg{Name: a.name}
			}
			return bootstrapv1.Arg{Name: a.name, Value: new(a.value)}
		}),
	}
}

// machine is what is read of the Machines of a pool.
type machine struct {
	cluster, version       string
	config, infrastructure clusterv1.ContractVersionedObjectReference
}

func machineOf(whole *clusterv1.MachineSpec) machine {
	return machine{
		cluster: once(whole.ClusterName), version: once(whole.Version),
		config: reference(whole.Bootstrap.ConfigRef), infrastructure: reference(whole.InfrastructureRef),
	}
}

func (m *machine) whole() clusterv1.MachineSpec {
	return clusterv1.MachineSpec{
		ClusterName: m.cluster, Version: m.version, InfrastructureRef: m.infrastructure,
		Bootstrap: clusterv1.Bootstrap{ConfigRef: m.config},
	}
}

// each returns what of returns for each element. An empty list stays empty, as a patch would have to replace it.
func each[V, K any](list []V, of func(V) K) []K {
	if list == nil {
		return nil
	}
	all := make([]K, len(list))
	for i := range list {
		all[i] = of(list[i])
	}
	return all
}
