// Package model_test runs random sequences of what users, Cluster API and other programs do against the controller and
// the webhooks on a small API server of its own, and holds the product to what it promises after each step.
package model_test

import (
	_ "embed"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/plan"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/inplace"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/sequence"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/vocabulary"
)

type operation = sequence.Operation[*model]

func TestModel_OfControllerAndWebhooks(t *testing.T) {
	t.Parallel()
	quiet()
	valid := map[string]bool{}
	sequence.Test[*model]{
		New: func() *model { return newWorld(t, valid) }, Operations: operations(), Check: (*model).check,
		Finish: (*model).finish,
		Steps:  50_000, Length: 50,
	}.Run(t)
}

func operations() []operation {
	return slices.Concat(clusterOperations(), secretOperations(), poolOperations(), objectOperations(), otherOperations())
}

// edit changes an object as its user does, if it exists.
func edit[T client.Object](w *model, k key, change func(T)) {
	if live := w.live[k]; live != nil {
		object, _ := copyOf(live).(T)
		change(object)
		w.change(object)
	}
}

// annotation is an annotation of Cluster prod.
func annotation(name string, values ...string) operation {
	return operation{Name: "annotation " + name, Args: append(values, ""), Do: func(w *model, value string) error {
		edit(w, key{"Cluster", prod}, func(cluster *clusterv1.Cluster) { annotate(cluster, name, value) })
		return nil
	}}
}

func annotate(object client.Object, name, value string) {
	annotations := maps.Clone(object.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	if annotations[name] = value; value == "" {
		delete(annotations, name)
	}
	object.SetAnnotations(annotations)
}

func clusterOperations() []operation {
	label := func(cluster string) operation {
		return operation{
			Name: "label of " + cluster, Args: []string{"true", "true", "true", "true", "false", "True", ""},
			Weight: 4, Do: func(w *model, value string) error {
				edit(w, key{"Cluster", cluster}, func(c *clusterv1.Cluster) {
					if c.Labels = map[string]string{contract.LabelEnabled: value}; value == "" {
						c.Labels = nil
					}
				})
				return nil
			},
		}
	}
	return []operation{
		label(prod), label(prodEU),
		annotation(contract.AnnotationSecret, "other", "no-such"),
		annotation(contract.AnnotationRollout, contract.RolloutImmediate, contract.RolloutOnNextRollout),
		annotation(contract.AnnotationTargets, "containerd", "kubelet,trust", "commands,static-pods", "bad"),
		annotation(contract.AnnotationNoProxyGroups, "-metadata", "bad"),
		{Name: "endpoint", Args: []string{"", "prod.example.com"}, Do: func(w *model, host string) error {
			edit(w, key{"Cluster", prod}, func(c *clusterv1.Cluster) {
				if c.Spec.ControlPlaneEndpoint = (clusterv1.APIEndpoint{Host: host, Port: 6443}); host == "" {
					c.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{}
				}
			})
			return nil
		}},
		{Name: "pause Cluster prod", Args: []string{"true", "", ""}, Do: func(w *model, value string) error {
			edit(w, key{"Cluster", prod}, func(c *clusterv1.Cluster) { c.Spec.Paused = new(value != "") })
			return nil
		}},
		{Name: "reconcile", Args: []string{prod, prod, prodEU}, Weight: 12, Do: func(w *model, name string) error { return w.reconcile(name) }},
		{Name: "settle", Weight: 2, Do: func(w *model, _ string) error { return w.settle() }},
	}
}

// authority is a certificate authority, which is a valid proxy Secret without a proxy.
//
//go:embed testdata/authority.pem
var authority string

func secretOperations() []operation {
	contents := map[string]map[string]string{
		"plain":         {"httpProxy": "http://proxy:3128"},
		"another":       {"httpProxy": "http://[fd00::1]:8080", "noProxy": "a.example.com\nb.example.com"},
		"with password": {"httpProxy": "http://proxy:3128", "username": "u", "password": password},
		"certificates":  {"trustedCA": authority},
		"bad":           {"httpproxy": "http://u:" + password + "@proxy"},
		"no":            nil,
	}
	generated := []string{
		prod + contract.GeneratedSecretSuffix, prodEU + contract.GeneratedSecretSuffix,
		"prod.eu.md.md.proxy-files",
	}
	return []operation{
		{Name: "proxy Secret is", Args: slices.Sorted(maps.Keys(contents)), Do: func(w *model, what string) error {
			if secret := vocabulary.ProxySecret(namespace, "http-proxy", contents[what]); what == "no" {
				w.put(w.keyOf(secret), nil)
			} else {
				w.change(secret)
			}
			return nil
		}},
		{Name: "somebody's Secret", Args: generated, Do: func(w *model, name string) error {
			if k := (key{"Secret", name}); w.live[k] == nil {
				defer func() { w.now = w.now.Add(time.Minute) }() // longer than what is remembered of absent Secrets
				w.change(&corev1.Secret{
					ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
					Data:       map[string][]byte{contract.KeyProxyEnv: []byte("theirs")},
				})
			}
			return nil
		}},
		{Name: "delete somebody's Secret", Args: generated, Do: func(w *model, name string) error {
			if k := (key{"Secret", name}); w.live[k] != nil && w.live[k].GetLabels()[contract.LabelGenerated] == "" {
				w.put(k, nil)
			}
			return nil
		}},
		{Name: "delete the generated Secret", Args: generated, Do: func(w *model, name string) error {
			if secret := w.live[key{"Secret", name}]; secret != nil {
				w.put(w.keyOf(secret), nil)
			}
			return nil
		}},
	}
}

func poolOperations() []operation {
	return []operation{
		{Name: "Secret of pool prod-md", Args: []string{"", contract.SecretNone, "other", "no-such"}, Do: func(w *model, value string) error {
			edit(w, key{"MachineDeployment", prod + "-md"},
				func(md *clusterv1.MachineDeployment) { annotate(md, contract.AnnotationSecret, value) })
			return nil
		}},
		{Name: "pool eu.md of prod with Secret", Args: []string{"", "other", "gone"}, Do: func(w *model, value string) error {
			c := vocabulary.NewClassic(namespace, prod, "linux")
			c.Deployment.Name, c.Template.Name = "eu.md", "prod-eu.md"
			c.Deployment.Spec.Template.Spec.Bootstrap.ConfigRef.Name = c.Template.Name
			if value == "gone" {
				w.put(w.keyOf(c.Deployment), nil)
				return nil
			}
			annotate(c.Deployment, contract.AnnotationSecret, value)
			if w.live[w.keyOf(c.Template)] == nil {
				w.own[w.keyOf(c.Template)] = specOf(c.Template).DeepCopy()
				w.change(c.Template)
			}
			w.change(c.Deployment)
			return nil
		}},
		{Name: "pool prod.eu-md uses template", Args: []string{"prod-md", "prod.eu-md"}, Do: func(w *model, value string) error {
			edit(w, key{"MachineDeployment", prodEU + "-md"},
				func(md *clusterv1.MachineDeployment) { md.Spec.Template.Spec.Bootstrap.ConfigRef.Name = value })
			return nil
		}},
	}
}

// manifests are bootstrap specs that a user may write.
func manifests() map[string]func(*bootstrapv1.KubeadmConfigSpec) {
	return map[string]func(*bootstrapv1.KubeadmConfigSpec){
		"nothing": func(s *bootstrapv1.KubeadmConfigSpec) {
			s.Files, s.PreKubeadmCommands, s.PostKubeadmCommands = nil, nil, nil
		},
		"rude": func(s *bootstrapv1.KubeadmConfigSpec) {
			s.Files = []bootstrapv1.File{{Path: "/a", Content: `%s "$(x)" {{ y }}`}, {Path: "/б", Content: "'"}}
			s.PreKubeadmCommands, s.PostKubeadmCommands = []string{"`id`", "export HTTP_PROXY=mine", "'"}, []string{"a\nb"}
		},
		"in the way": func(s *bootstrapv1.KubeadmConfigSpec) {
			s.Files = []bootstrapv1.File{
				{Path: "/a", Content: "x"},
				{Path: "/etc/systemd/system/kubelet.service.d/http-proxy.conf", Content: "[Service]\n", Permissions: "0600"},
				{Path: "/b", Content: "y"},
			}
			s.PreKubeadmCommands, s.PostKubeadmCommands = []string{"echo own"}, nil
		},
		"post": func(s *bootstrapv1.KubeadmConfigSpec) {
			s.Files, s.PreKubeadmCommands, s.PostKubeadmCommands = nil, nil, []string{"echo done", "echo done"}
		},
	}
}

func objectOperations() []operation {
	targets := []key{
		{"KubeadmControlPlane", prod},
		{"KubeadmConfigTemplate", prod + "-md"},
		{"KubeadmConfig", prod + "-mp"},
		{"KubeadmConfigTemplate", "prod-eu.md"},
	}
	var out []operation
	for _, k := range targets {
		name := k.kind + " " + k.name
		names := slices.Sorted(maps.Keys(manifests()))
		out = append(out,
			operation{
				Name: "apply " + name, Args: names,
				Do: func(w *model, manifest string) error { return w.apply(k, manifest) },
			},
			operation{Name: "pause " + name, Args: []string{"mine", "", ""}, Do: func(w *model, value string) error {
				if object := w.live[k]; object != nil && !plan.IsPausedByUs(object.GetAnnotations()) {
					edit(w, k, func(object client.Object) { annotate(object, clusterv1.PausedAnnotation, value) })
				}
				return nil
			}},
			operation{Name: "read, change and write " + name, Do: func(w *model, _ string) error {
				object := w.live[k]
				if object == nil || len(viewOf(object).PreKubeadmCommands) > 40 {
					return nil
				}
				object = copyOf(object)
				w.own[k] = w.own[k].DeepCopy()
				for _, spec := range []*bootstrapv1.KubeadmConfigSpec{specOf(object), w.own[k]} {
					spec.PreKubeadmCommands = append(spec.PreKubeadmCommands, "more")
				}
				w.userWrites(object)
				return nil
			}})
	}
	return out
}

// apply writes a manifest, which has none of our entries or annotations.
func (w *model) apply(k key, manifest string) error {
	object := w.live[k]
	if object == nil {
		return nil
	}
	object = copyOf(object)
	spec := specOf(object)
	manifests()[manifest](spec)
	w.own[k] = spec.DeepCopy()
	for name := range object.GetAnnotations() {
		if strings.HasPrefix(name, contract.Domain) || plan.IsPausedByUs(object.GetAnnotations()) &&
			name == clusterv1.PausedAnnotation {
			annotate(object, name, "")
		}
	}
	w.userWrites(object)
	return nil
}

// userWrites stores an object of a user. A control plane whose entries are others by that has its Machine replaced.
func (w *model) userWrites(object client.Object) {
	k := w.keyOf(object)
	before := w.live[k]
	w.change(object)
	if k.kind == "KubeadmControlPlane" && (unmanaged(specOf(before)) != unmanaged(specOf(w.live[k])) || w.hooks == nil) {
		w.due = true
	}
}

func otherOperations() []operation {
	kinds := []string{
		"Cluster", "KubeadmControlPlane", "KubeadmConfigTemplate", "KubeadmConfig", "MachineDeployment",
		"Machine", "Secret",
	}
	return []operation{
		{Name: "the cache of", Args: kinds, Do: func(w *model, kind string) error {
			if w.behind[kind] {
				w.catchUp(kind)
			} else {
				w.behind[kind] = true
			}
			return nil
		}},
		{Name: "restart", Do: func(w *model, _ string) error {
			for kind := range w.behind {
				w.catchUp(kind)
			}
			w.start()
			return nil
		}},
		{Name: "the webhooks are", Args: []string{"away", "there", "there"}, Do: func(w *model, value string) error {
			if w.start(); value == "away" {
				w.hooks = nil
			}
			return nil
		}},
		{Name: "Cluster API looks", Weight: 2, Do: func(w *model, _ string) error { w.looks(); return nil }},
		{Name: "Cluster API reads the control plane", Do: func(w *model, _ string) error {
			controlPlane := w.controlPlane()
			_, paused := controlPlane.Annotations[clusterv1.PausedAnnotation]
			confirmed := slices.ContainsFunc(controlPlane.Status.Conditions, func(c metav1.Condition) bool {
				return c.Type == clusterv1.PausedCondition && c.Status == metav1.ConditionFalse
			})
			if !paused && confirmed && w.firstMachine() == nil {
				w.read = controlPlane
			}
			return nil
		}},
		{Name: "Cluster API creates the first Machine", Weight: 2, Do: func(w *model, _ string) error {
			if w.read != nil {
				// It lasts until Cluster API has compared: a user's change since then replaces it.
				due := unmanaged(specOf(w.read)) != unmanaged(specOf(w.controlPlane()))
				w.machine(*w.read.Spec.KubeadmConfigSpec.DeepCopy())
				w.due = due
			}
			return nil
		}},
		{Name: "Cluster API replaces the Machine", Do: func(w *model, _ string) error {
			if w.due && w.firstMachine() != nil {
				w.now = w.now.Add(time.Minute)
				w.machine(*w.controlPlane().Spec.KubeadmConfigSpec.DeepCopy())
			}
			return nil
		}},
		{Name: "bootstrap data of MachinePool prod-mp is made", Do: func(w *model, _ string) error {
			if config, _ := w.live[key{"KubeadmConfig", prod + "-mp"}].(*bootstrapv1.KubeadmConfig); config != nil &&
				config.Annotations[clusterv1.PausedAnnotation] == "" {
				config = copyOf(config)
				config.Status.DataSecretName = "data"
				w.put(w.keyOf(config), config)
			}
			return nil
		}},
	}
}

func TestMain(m *testing.M) {
	inplace.New() // their names
	publish.New()
	m.Run()
}
