package controller

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/infrastructure"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/settings"
)

// secretsOf are the generated Secrets of Cluster one among objects.
func secretsOf(t *testing.T, objects ...client.Object) (*Secrets, *shown) {
	t.Helper()
	s, writer := show(t, objects...)
	reader, cluster := Reader{Client: s}, &clusterv1.Cluster{ObjectMeta: named("one")}
	cluster.UID = "cluster"
	view := settings.ClusterOf(cluster)
	return NewSecrets(writer, reader, noon, cluster, view, reader.Configs(view)), s
}

// complete are settings that are complete.
func complete(t *testing.T) settings.Resolution {
	t.Helper()
	proxy, err := settings.ParseSecret(map[string][]byte{contract.KeyHTTPProxy: []byte("http://p:3128")})
	if err != nil {
		t.Fatal(err)
	}
	return settings.Resolution{Settings: proxy, Complete: true}
}

// TestEnsure_WritesWhatDiffers starts with the Secret that a pass an hour ago has written.
func TestEnsure_WritesWhatDiffers(t *testing.T) {
	t.Parallel()
	name := settings.GeneratedSecretName("one")
	conflict := apierrors.NewConflict(schema.GroupResource{}, name, nil)
	exists := apierrors.NewAlreadyExists(schema.GroupResource{}, name)
	immutable := func(s *corev1.Secret) { s.Immutable = new(true) }
	stale := func(s *corev1.Secret) { s.Data[contract.KeyContentHash] = []byte("other") }
	for what, test := range map[string]struct {
		// change makes the Secret before it; nil is that there is none.
		change     func(*corev1.Secret)
		incomplete bool
		refusal    error
		writes     string
		// changed reports that the time of the content changes.
		changed bool
		fails   bool
	}{
		"none":                        {writes: "create"},
		"none, incomplete settings":   {incomplete: true},
		"one that the cache lacks":    {refusal: exists, writes: "create"},
		"none, and a refused write":   {refusal: conflict, writes: "create", fails: true},
		"the same":                    {change: func(*corev1.Secret) {}},
		"the same, immutable":         {change: immutable},
		"another value":               {change: func(s *corev1.Secret) { s.Data[contract.KeyProxyEnv] = nil }, writes: "update"},
		"another content":             {change: stale, writes: "update", changed: true},
		"another, incomplete":         {change: stale, incomplete: true},
		"another, and refused":        {change: stale, refusal: conflict, writes: "update", fails: true},
		"another, immutable":          {change: func(s *corev1.Secret) { immutable(s); stale(s) }, writes: "delete create", changed: true},
		"another, not immutable":      {change: func(s *corev1.Secret) { s.Immutable = new(false); stale(s) }, writes: "update", changed: true},
		"immutable, and refused":      {change: func(s *corev1.Secret) { immutable(s); stale(s) }, refusal: conflict, writes: "delete", fails: true},
		"one that another has by now": {change: func(s *corev1.Secret) { s.Labels[contract.LabelGenerated] = "two" }, fails: true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			resolution, before := complete(t), []client.Object{}
			if test.change != nil {
				s, _ := secretsOf(t)
				secret, err := s.generatedSecret(name, resolution)
				if err != nil {
					t.Fatal(err)
				}
				secret.UID, secret.ResourceVersion = "uid", "7"
				test.change(secret)
				before = append(before, secret)
			}
			s, shown := secretsOf(t, before...)
			shown.refusal = test.refusal
			resolution.Complete = !test.incomplete
			out, err := s.Ensure(t.Context(), name, resolution)
			_, again := s.Ensure(t.Context(), name, resolution)
			var writes []string
			for _, write := range shown.writes {
				writes = append(writes, strings.Fields(write)[0])
			}
			if got := strings.Join(writes, " "); got != test.writes || (err != nil) != test.fails || again != nil ||
				len(out.Findings) > 0 {
				t.Errorf("writes %q, error %v, then %v, findings %v", got, err, again, out.Findings)
			}
			at, err := s.ChangedAt(t.Context(), name)
			if err != nil || at.Equal(noon()) != test.changed && test.refusal == nil {
				t.Errorf("changed at %v, error %v", at, err)
			}
		})
	}
}

// TestEnsure_KnowsWhatAnotherManagerKeeps in a Secret that three passes have updated: the fourth is skipped.
func TestEnsure_KnowsWhatAnotherManagerKeeps(t *testing.T) {
	t.Parallel()
	name, cluster := settings.GeneratedSecretName("one"), &clusterv1.Cluster{ObjectMeta: named("one")}
	theirs := generated(name)
	theirs.Data[contract.KeyProxyEnv] = []byte("theirs")
	s, writer := show(t, theirs)
	reader, view, ctx := Reader{Client: s}, settings.ClusterOf(cluster), writer.Client.ForCluster(t.Context(), cluster)
	for pass, updated := range []bool{true, true, true, false} {
		secrets := NewSecrets(writer, reader, noon, cluster, view, reader.Configs(view))
		if _, err := secrets.Ensure(ctx, name, complete(t)); err != nil {
			t.Fatal(err)
		}
		known, err := secrets.Read(ctx, name)
		if err != nil || known.UID == "" || ChangedAt(known).Equal(noon()) != updated {
			t.Errorf("pass %d: version %s, changed at %s, error %v", pass, known.UID, ChangedAt(known), err)
		}
	}
}

// TestEnsure_FindsANameThatIsTaken has a Secret of somebody else that only the API server knows.
func TestEnsure_FindsANameThatIsTaken(t *testing.T) {
	t.Parallel()
	s, shown := secretsOf(t)
	shown.refusal = apierrors.NewAlreadyExists(schema.GroupResource{}, "a")
	foreign := metav1.PartialObjectMetadata{ObjectMeta: named("a")}
	foreign.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	s.known["a"] = nil // the cache does not have it
	shown.world.Add(&foreign)
	out, err := s.Ensure(t.Context(), "a", complete(t))
	if err != nil || len(out.Findings) != 1 || out.Findings[0].Reason != contract.ReasonNameTaken || out.RequeueAfter != takenDelay ||
		s.Taken("a") == "" {
		t.Errorf("got %+v, error %v", out, err)
	}
}

// TestGeneratedSecret_RemembersWhatInfrastructureTells in the Secret of the Cluster, and not in those of pools.
func TestGeneratedSecret_RemembersWhatInfrastructureTells(t *testing.T) {
	t.Parallel()
	s, _ := secretsOf(t)
	own := settings.GeneratedSecretName("one")
	for name, test := range map[string]struct {
		secret string
		told   *infrastructure.Memory
		want   bool
	}{
		"nobody asked":    {own, nil, false},
		"not read":        {own, &infrastructure.Memory{Kind: "A"}, false},
		"read":            {own, &infrastructure.Memory{Kind: "A", Facts: infrastructure.Facts{Read: true}}, true},
		"read, of a pool": {"one.md.md" + contract.PoolSecretSuffix, &infrastructure.Memory{Kind: "A", Facts: infrastructure.Facts{Read: true}}, false},
	} {
		resolution := complete(t)
		resolution.Infrastructure = test.told
		secret, err := s.generatedSecret(test.secret, resolution)
		if err != nil {
			t.Fatal(err)
		}
		if _, got := secret.Data[contract.KeyInfrastructure]; got != test.want {
			t.Errorf("%s: remembered %t", name, got)
		}
		for key := range secret.Data {
			if !slices.Contains(contract.GeneratedKeys(), key) {
				t.Errorf("%s: the cache would drop key %s, and each pass write it again", name, key)
			}
		}
	}
}

// TestNudge_WakesWhoWaitsForTheSecret has a KubeadmConfig each, an hour older than the Secret.
func TestNudge_WakesWhoWaitsForTheSecret(t *testing.T) {
	t.Parallel()
	changed := map[string]string{contract.AnnotationChangedAt: "2026-01-01T12:00:00Z"}
	for name, test := range map[string]struct {
		change func(*bootstrapv1.KubeadmConfig)
		secret map[string]string
		// token is the annotation that it gets, "" for none.
		token string
	}{
		"that waits":                      {func(*bootstrapv1.KubeadmConfig) {}, nil, "uid"},
		"that waits for a change":         {func(*bootstrapv1.KubeadmConfig) {}, changed, "uid/2026-01-01T12:00:00Z"},
		"that has its data":               {func(c *bootstrapv1.KubeadmConfig) { c.Status.DataSecretName = "data" }, nil, ""},
		"that is being deleted":           {func(c *bootstrapv1.KubeadmConfig) { c.DeletionTimestamp = new(metav1.NewTime(noon())) }, nil, ""},
		"as old as the Secret":            {func(c *bootstrapv1.KubeadmConfig) { c.CreationTimestamp = metav1.NewTime(noon().Add(-time.Minute)) }, nil, "uid"},
		"younger than the Secret":         {func(c *bootstrapv1.KubeadmConfig) { c.CreationTimestamp = metav1.NewTime(noon()) }, nil, ""},
		"younger, before a change":        {func(c *bootstrapv1.KubeadmConfig) { c.CreationTimestamp = metav1.NewTime(noon()) }, changed, "uid/2026-01-01T12:00:00Z"},
		"younger than a change":           {func(c *bootstrapv1.KubeadmConfig) { c.CreationTimestamp = metav1.NewTime(noon().Add(time.Second)) }, changed, ""},
		"that is nudged":                  {func(c *bootstrapv1.KubeadmConfig) { c.Annotations = map[string]string{contract.AnnotationNudge: "uid"} }, nil, ""},
		"that is nudged before a change":  {func(c *bootstrapv1.KubeadmConfig) { c.Annotations = map[string]string{contract.AnnotationNudge: "uid"} }, changed, "uid/2026-01-01T12:00:00Z"},
		"that waits for another":          {func(c *bootstrapv1.KubeadmConfig) { c.Spec = referring("b") }, nil, ""},
		"that refers to none":             {func(c *bootstrapv1.KubeadmConfig) { c.Spec.Files = nil }, nil, ""},
		"of another Cluster with a label": {func(c *bootstrapv1.KubeadmConfig) { c.Labels[clusterv1.ClusterNameLabel] = "two" }, nil, ""},
	} {
		config, secret := configOf("m"), generated("a")
		config.Status.DataSecretName, config.Spec = "", referring("a")
		secret.CreationTimestamp, secret.Annotations = metav1.NewTime(noon().Add(-time.Minute)), test.secret
		test.change(config)
		s, shown := secretsOf(t, config)
		if err := s.nudge(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		var want []string
		if test.token != "" {
			want = []string{`patch m {"metadata":{"annotations":{"` + contract.AnnotationNudge + `":"` + test.token + `"}}}`}
		}
		if !slices.Equal(shown.writes, want) {
			t.Errorf("a KubeadmConfig %s: got %q, want %q", name, shown.writes, want)
		}
	}
}

// TestNudge_ReportsARefusal but not that a KubeadmConfig is gone.
func TestNudge_ReportsARefusal(t *testing.T) {
	t.Parallel()
	for _, refusal := range []error{apierrors.NewNotFound(schema.GroupResource{}, "m"), errors.New("refused")} {
		config := configOf("m")
		config.Status.DataSecretName, config.Spec = "", referring("a")
		s, shown := secretsOf(t, config)
		shown.refusal = refusal
		if err := s.nudge(t.Context(), generated("a")); (err != nil) == apierrors.IsNotFound(refusal) {
			t.Errorf("%v: got %v", refusal, err)
		}
	}
}

// TestClean_DeletesWhatNothingRefersTo has the Secret of Cluster one.
func TestClean_DeletesWhatNothingRefersTo(t *testing.T) {
	t.Parallel()
	own := settings.GeneratedSecretName("one")
	gone := apierrors.NewNotFound(schema.GroupResource{}, own)
	waiting := func(secret, data string) *bootstrapv1.KubeadmConfig {
		config := configOf("m")
		config.Status.DataSecretName, config.Spec = data, referring(secret)
		return config
	}
	for name, test := range map[string]struct {
		change  func(*corev1.Secret)
		config  *bootstrapv1.KubeadmConfig
		keep    []string
		refusal error
		deleted bool
		fails   bool
	}{
		"nothing refers to it":         {deleted: true},
		"it is gone meanwhile":         {refusal: gone, deleted: true},
		"a refused deletion":           {refusal: errors.New("refused"), deleted: true, fails: true},
		"an object refers to it":       {keep: []string{own}},
		"an object refers to another":  {keep: []string{"b", ""}, deleted: true},
		"a Machine waits for it":       {config: waiting(own, "")},
		"a Machine has its data":       {config: waiting(own, "data"), deleted: true},
		"a Machine waits for another":  {config: waiting("b", ""), deleted: true},
		"nobody owns it":               {change: func(s *corev1.Secret) { s.OwnerReferences = nil }},
		"an earlier Cluster owns it":   {change: func(s *corev1.Secret) { s.OwnerReferences[0].UID = "before" }},
		"it is of another Cluster":     {change: func(s *corev1.Secret) { s.Labels[contract.LabelGenerated] = "two" }},
		"it is not a generated Secret": {change: func(s *corev1.Secret) { s.Labels = nil }},
	} {
		secret, config := generated(own), configOf("other")
		if test.change != nil {
			test.change(secret)
		}
		if test.config != nil {
			config = test.config
		}
		s, shown := secretsOf(t, secret, config)
		shown.refusal = test.refusal
		s.Keep(test.keep...)
		err := s.Clean(t.Context())
		if deleted := slices.Contains(shown.writes, "delete "+own); deleted != test.deleted || (err != nil) != test.fails {
			t.Errorf("%s: deleted %t, error %v", name, deleted, err)
		}
	}
}

// TestMakers_TellsRenderedSecrets by their hash, which only the manager writes.
func TestMakers_TellsRenderedSecrets(t *testing.T) {
	t.Parallel()
	own, ofPool := settings.GeneratedSecretName("one"), "one.md.md"+contract.PoolSecretSuffix
	rendered, written := generated(own), generated(ofPool)
	written.Data[contract.KeyContentHash] = []byte("x")
	foreign := generated(settings.GeneratedSecretName("two"))
	foreign.Labels[contract.LabelGenerated] = "two"
	for name, test := range map[string]struct {
		objects  []client.Object
		written  bool
		rendered []string
	}{
		"none":              {nil, false, nil},
		"both":              {[]client.Object{rendered, written}, true, []string{own}},
		"rendered":          {[]client.Object{rendered}, false, []string{own}},
		"written":           {[]client.Object{written}, true, nil},
		"another Cluster's": {[]client.Object{foreign}, false, nil},
	} {
		s, _ := secretsOf(t, test.objects...)
		written, rendered, err := s.Makers(t.Context())
		if err != nil || written != test.written || !slices.Equal(rendered, test.rendered) {
			t.Errorf("%s: written %t, rendered %q, error %v", name, written, rendered, err)
		}
	}
}

// TestChangedAt_IsZeroWithoutATimeOfOurs asks for Secrets with the annotation.
func TestChangedAt_IsZeroWithoutATimeOfOurs(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]time.Time{
		"": {}, "yesterday": {}, "2026-01-01T12:00:00Z": noon(), "2026-01-01T13:00:00+01:00": noon(),
	} {
		secret := generated("a")
		secret.Annotations = map[string]string{contract.AnnotationChangedAt: value}
		unnamed := secret.DeepCopy()
		unnamed.Name = ""
		s, _ := secretsOf(t, secret, unnamed)
		for name, want := range map[string]time.Time{"a": want, "b": {}, "": {}} {
			if got, err := s.ChangedAt(t.Context(), name); err != nil || !got.Equal(want) {
				t.Errorf("%q of Secret %q: got %v, error %v", value, name, got, err)
			}
		}
	}
}
