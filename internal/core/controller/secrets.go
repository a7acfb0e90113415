package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/world"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// takenDelay is when to check again for a foreign Secret with the name of a generated one, because it is not watched.
const takenDelay = time.Minute

// Secrets are the generated Secrets of one Cluster in one pass.
type Secrets struct {
	writer *Writer
	reader Reader
	now    func() time.Time

	cluster settings.Cluster
	owner   metav1.OwnerReference
	configs *Configs
	// needed are the names that a bootstrap object refers to.
	needed map[string]bool
	// ensured are the Secrets that this pass has written or checked.
	ensured map[string]bool
	// desired are the data that this pass has computed, by name.
	desired map[string]map[string][]byte
	// known are the Secrets that this pass has written, which the cache may not show yet, or else read, by name; nil is
	// one that does not exist.
	known map[string]*corev1.Secret
	// all are the Secrets that are labelled for the Cluster, as they were at the first use.
	all *corev1.SecretList
	// taken is why nothing may refer to a name, for the names that this pass has checked; "" means that the name is
	// free.
	taken map[string]string
}

// NewSecrets returns the generated Secrets of a Cluster; view has its settings.
func NewSecrets(writer *Writer, reader Reader, now func() time.Time, cluster *clusterv1.Cluster, view settings.Cluster,
	configs *Configs,
) *Secrets {
	return &Secrets{
		writer: writer, reader: reader, now: now, cluster: view, configs: configs,
		owner: metav1.OwnerReference{
			APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: cluster.Name,
			UID: cluster.UID,
		},
		needed: map[string]bool{}, ensured: map[string]bool{}, desired: map[string]map[string][]byte{},
		known: map[string]*corev1.Secret{}, taken: map[string]string{},
	}
}

// Keep keeps Secrets that something refers to.
func (s *Secrets) Keep(names ...string) {
	for _, name := range names {
		s.needed[name] = true
	}
}

// Taken returns why nothing may refer to a name as far as this pass has checked, or "".
func (s *Secrets) Taken(name string) string { return s.taken[name] }

// WhyTaken checks a name, and returns why nothing may refer to it, or "". The first call gets the finding about it.
func (s *Secrets) WhyTaken(ctx context.Context, name string) (string, Outcome, error) {
	why, known := s.taken[name]
	if known {
		return why, Outcome{}, nil
	}
	key := types.NamespacedName{Namespace: s.cluster.Namespace, Name: name}
	secret, err := s.Read(ctx, name)
	switch {
	case err != nil:
	case secret != nil:
		why = world.Taken(key, s.cluster.Name, secret.Labels)
	default:
		why, err = s.names().Taken(ctx, key, s.cluster.Name)
	}
	if err != nil {
		return "", Outcome{}, err
	}
	return why, s.refuse(name, why), nil
}

// Read returns a generated Secret as this pass has written it, or else as the cache had it at the first use; nil if it
// does not exist. Nobody changes it.
func (s *Secrets) Read(ctx context.Context, name string) (*corev1.Secret, error) {
	secret, known := s.known[name]
	if known {
		return secret, nil
	}
	secret = &corev1.Secret{}
	exists, err := s.reader.Get(ctx, s.cluster.Namespace, name, secret)
	if err != nil {
		return nil, err
	}
	if !exists {
		secret = nil
	}
	s.known[name] = secret
	return secret, nil
}

func (s *Secrets) names() world.GeneratedSecrets {
	return world.GeneratedSecrets{Cached: s.writer.Client, Live: s.writer.Live}
}

// refuse records why nothing may refer to a name, or that it is free.
func (s *Secrets) refuse(name, why string) (out Outcome) {
	if s.taken[name] = why; why != "" {
		out.Add(contract.ReasonNameTaken, "%s", why)
		out.RequeueIn(takenDelay)
	}
	return out
}

// Desired returns the data of a generated Secret as this pass has computed them, whatever is stored; nil if it has not.
// Nobody changes them.
func (s *Secrets) Desired(name string) map[string][]byte { return s.desired[name] }

// Ensure writes a generated Secret if its content differs. It is not created before the settings are complete, so that
// no bootstrap data is generated from incomplete ones. The outcome has the findings about the settings; then the Secret
// is not changed.
func (s *Secrets) Ensure(ctx context.Context, name string, resolution settings.Resolution) (Outcome, error) {
	s.needed[name] = true
	if s.ensured[name] {
		return Outcome{}, nil // for another object of this pass; the cache may not show it yet
	}
	s.ensured[name] = true
	out, err := s.write(ctx, name, resolution)
	if found := finding.Of(err); len(found) > 0 {
		out.AddAll(found...)
		return out, nil
	}
	return out, err
}

func (s *Secrets) write(ctx context.Context, name string,
	resolution settings.Resolution,
) (out Outcome, err error) {
	current, err := s.Read(ctx, name)
	if err != nil || !resolution.Complete {
		return out, err
	}
	desired, err := s.generatedSecret(name, resolution)
	if err != nil {
		return out, err
	}
	s.desired[name] = desired.Data
	switch {
	case current == nil:
		ctrl.LoggerFrom(ctx).Info("Creating generated Secret", "Secret", klog.KObj(desired))
		err := s.writer.Client.Create(ctx, desired)
		if apierrors.IsAlreadyExists(err) {
			// The cache is behind, or somebody else was faster. The cache will show our own Secret.
			why, err := s.names().TakenLive(ctx, client.ObjectKeyFromObject(desired), s.cluster.Name)
			out.Join(s.refuse(name, why))
			return out, err
		}
		if err != nil {
			return out, fmt.Errorf("creating Secret %s: %w", klog.KObj(desired), err)
		}
	case current.Labels[contract.LabelGenerated] != s.cluster.Name:
		return out, CacheBehind("Secret", current) // it was ours when the name was checked
	case !sameSecret(current, desired):
		keepOthers(current, desired)
		if contentChanged(current, desired) {
			desired.Annotations[contract.AnnotationChangedAt] = laterThan(ChangedAt(current), s.now()).Format(time.RFC3339)
		}
		ctrl.LoggerFrom(ctx).Info("Updating generated Secret", "Secret", klog.KObj(desired))
		if err := s.replaceSecret(ctx, current, desired); err != nil {
			return out, err
		}
	default:
		return out, s.nudge(ctx, current)
	}
	if desired.UID == "" {
		return out, nil // contested
	}
	s.known[name] = desired
	return out, s.nudge(ctx, desired)
}

// replaceSecret updates a generated Secret to desired. An immutable one is deleted and recreated.
func (s *Secrets) replaceSecret(ctx context.Context, current, desired *corev1.Secret) error {
	if current.Immutable == nil || !*current.Immutable {
		desired.ResourceVersion = current.ResourceVersion
		if err := s.writer.Client.Update(ctx, desired); err != nil {
			return fmt.Errorf("updating Secret %s: %w", klog.KObj(desired), err)
		}
		return nil
	}
	if err := s.writer.Client.Delete(ctx, current,
		client.Preconditions{
			UID:             &current.UID,
			ResourceVersion: &current.ResourceVersion,
		}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting Secret %s: %w", klog.KObj(current), err)
	}
	desired.UID, desired.ResourceVersion, desired.Immutable = "", "", nil
	if err := s.writer.Client.Create(ctx, desired); err != nil {
		return fmt.Errorf("creating Secret %s: %w", klog.KObj(desired), err)
	}
	return nil
}

// generatedSecret renders the Secret that files of bootstrap objects refer to.
func (s *Secrets) generatedSecret(name string, resolution settings.Resolution) (*corev1.Secret, error) {
	data, err := settings.SecretData(resolution)
	if err != nil {
		return nil, err
	}
	if infra := resolution.Infrastructure; infra != nil && infra.Facts.Read &&
		name == settings.GeneratedSecretName(s.cluster.Name) {
		if data[contract.KeyInfrastructure], err = infra.Encode(); err != nil {
			return nil, err
		}
	}
	data[contract.KeyContentHash] = contentHash(data)
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.cluster.Namespace, Name: name,
			Labels:          settings.SecretLabels(s.cluster),
			Annotations:     settings.SecretAnnotations(resolution),
			OwnerReferences: []metav1.OwnerReference{s.owner},
		},
		Type: corev1.SecretTypeOpaque,
		Data: data,
	}, nil
}

// List returns the generated Secrets of the Cluster as they were at the first call of the pass. They are the objects of
// the cache.
func (s *Secrets) List(ctx context.Context) ([]corev1.Secret, error) {
	if s.all == nil {
		secrets := &corev1.SecretList{}
		if err := s.writer.Client.List(ctx, secrets, client.InNamespace(s.cluster.Namespace),
			client.MatchingFields{world.IndexLabel: s.cluster.Name},
			client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing generated Secrets: %w", err)
		}
		s.all = secrets
	}
	return s.all.Items, nil
}

// Makers reports whether the manager has written a Secret of the Cluster, and returns the names of those that it has
// not written: render has, and they belong to its user.
func (s *Secrets) Makers(ctx context.Context) (written bool, rendered []string, err error) {
	secrets, err := s.List(ctx)
	for i := range secrets {
		if _, hashed := secrets[i].Data[contract.KeyContentHash]; hashed {
			written = true
		} else {
			rendered = append(rendered, secrets[i].Name)
		}
	}
	return written, rendered, err
}

// Clean deletes the Secrets that the Cluster owns and that no bootstrap object refers to.
func (s *Secrets) Clean(ctx context.Context) error {
	secrets, err := s.List(ctx)
	if err != nil || len(secrets) == 0 {
		return err
	}
	configs, err := s.configs.List(ctx)
	if err != nil {
		return err
	}
	for i := range configs {
		if configs[i].Status.DataSecretName == "" { // it has no bootstrap data yet
			s.Keep(patch.References(kinds.View(&configs[i]))...)
		}
	}
	for i := range secrets {
		secret := &secrets[i]
		if s.needed[secret.Name] || !IsOwned(secret, s.owner.UID) {
			continue
		}
		ctrl.LoggerFrom(ctx).Info("Deleting generated Secret that nothing refers to", "Secret", klog.KObj(secret))
		if err := s.writer.Client.Delete(ctx, secret,
			client.Preconditions{UID: &secret.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting Secret %s: %w", klog.KObj(secret), err)
		}
	}
	return nil
}
