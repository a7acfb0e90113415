package slim

import (
	"reflect"
	"slices"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// bootstrap is what patch.SpecOf reads of a bootstrap spec, except for the contents of files that are not managed. Most
// specs are those of other Clusters and Machines, too, but for the Secrets that files come from.
type bootstrap struct {
	spec    shared[spec]
	secrets []string
}

type spec struct {
	files      list[file]
	pre, post  list[string]
	format     bootstrapv1.Format
	init, join registration
	// others is set if the whole spec has more than files and commands, and none of what is kept shows it.
	others bool
}

// file is an entry of files. append is its field of that name, secret the number of its Secret, from 1.
type file struct {
	bootstrapv1.File

	append optional[bool]
	secret int
}

type registration struct {
	socket string
	args   list[arg]
}

type arg struct {
	name  string
	value optional[string]
}

func bootstrapOf(whole *bootstrapv1.KubeadmConfigSpec) (b bootstrap) {
	view, i := patch.SpecOf(&bootstrapv1.KubeadmConfigSpec{Files: whole.Files}).Files, 0
	kept := spec{
		files: listOf(whole.Files, func(f bootstrapv1.File) file {
			if !patch.IsManagedFile(view[i]) && !patch.ReadsContent(f.Path) {
				f.Content = ""
			}
			i++
			kept := file{File: f, append: optionally(f.Append), secret: b.numberOf(f.ContentFrom.Secret.Name)}
			kept.Append, kept.ContentFrom.Secret.Name = nil, ""
			return kept
		}),
		pre: listOf(whole.PreKubeadmCommands, same), post: listOf(whole.PostKubeadmCommands, same),
		format: whole.Format,
		init:   registrationOf(&whole.InitConfiguration.NodeRegistration),
		join:   registrationOf(&whole.JoinConfiguration.NodeRegistration),
	}
	kept.others = kept.format == "" && kept.init == registration{} && kept.join == registration{} && hasOthers(*whole)
	b.spec, b.secrets = sharedOf(kept), slices.Clip(b.secrets)
	return b
}

// numberOf returns the number of a Secret. Its entries mostly follow each other, and it need not be kept for each.
func (b *bootstrap) numberOf(secret string) int {
	if secret == "" {
		return 0
	}
	if n := len(b.secrets); n == 0 || b.secrets[n-1] != secret {
		b.secrets = append(b.secrets, secret)
	}
	return len(b.secrets)
}

func (b *bootstrap) whole() bootstrapv1.KubeadmConfigSpec {
	kept := b.spec.value()
	whole := bootstrapv1.KubeadmConfigSpec{
		Files: wholeOf(kept.files, func(f file) bootstrapv1.File {
			if f.Append = f.append.whole(); f.secret > 0 {
				f.ContentFrom.Secret.Name = b.secrets[f.secret-1]
			}
			return f.File
		}),
		PreKubeadmCommands:  wholeOf(kept.pre, same),
		PostKubeadmCommands: wholeOf(kept.post, same),
		Format:              kept.format,
	}
	whole.InitConfiguration.NodeRegistration = kept.init.whole()
	whole.JoinConfiguration.NodeRegistration = kept.join.whole()
	if kept.others {
		whole.Verbosity = new(int32) // not empty
	}
	return whole
}

// hasOthers reports whether a spec has more than files and commands.
func hasOthers(spec bootstrapv1.KubeadmConfigSpec) bool {
	spec.Files, spec.PreKubeadmCommands, spec.PostKubeadmCommands = nil, nil, nil
	return !reflect.ValueOf(&spec).Elem().IsZero()
}

func registrationOf(whole *bootstrapv1.NodeRegistrationOptions) registration {
	return registration{whole.CRISocket, listOf(whole.KubeletExtraArgs, func(a bootstrapv1.Arg) arg {
		return arg{a.Name, optionally(a.Value)}
	})}
}

func (r *registration) whole() bootstrapv1.NodeRegistrationOptions {
	return bootstrapv1.NodeRegistrationOptions{
		CRISocket: r.socket,
		KubeletExtraArgs: wholeOf(r.args, func(a arg) bootstrapv1.Arg {
			return bootstrapv1.Arg{Name: a.name, Value: a.value.whole()}
		}),
	}
}
