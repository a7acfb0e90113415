package diagnostics

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"
)

// reviewer is an API server that knows the tokens reader, stranger and nobody, and the names of their users.
type reviewer struct {
	*httptest.Server

	mutex   sync.Mutex
	asked   []string
	rights  []authorizationv1.SubjectAccessReviewSpec
	refuses bool
}

func newReviewer(t *testing.T) *reviewer {
	t.Helper()
	r := &reviewer{}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *reviewer) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.asked = append(r.asked, q.Method+" "+q.URL.Path)
	w.Header().Set("Content-Type", "application/json")
	body, _ := io.ReadAll(q.Body)
	switch {
	case r.refuses:
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
	case strings.HasSuffix(q.URL.Path, "/tokenreviews"):
		var review authenticationv1.TokenReview
		_ = json.Unmarshal(body, &review)
		token := review.Spec.Token
		review.Status.Authenticated = token == "reader" || token == "stranger"
		review.Status.User = authenticationv1.UserInfo{
			Username: token, UID: "1", Groups: []string{"g"},
			Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}},
		}
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(review)
	default:
		var review authorizationv1.SubjectAccessReview
		_ = json.Unmarshal(body, &review)
		r.rights = append(r.rights, review.Spec)
		review.Status.Allowed = review.Spec.User == "reader"
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(review)
	}
}

type level struct{ now int }

func (l *level) Set(number int) error {
	if number > 5 {
		return errors.New("use a level from 0 to 5")
	}
	l.now = number
	return nil
}

func guarded(t *testing.T, r *reviewer) (http.Handler, *level) {
	t.Helper()
	access, err := NewAccess(&rest.Config{
		Host: r.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"},
	}, r.Client())
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "some_metric"}, func() float64 { return 1 }))
	l := &level{now: 2}
	return Handler(registry, l, access), l
}

func ask(t *testing.T, h http.Handler, method, path, authorization, body string) (int, string) {
	t.Helper()
	q := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	if authorization != "" {
		q.Header.Set("Authorization", authorization)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, q)
	return w.Code, w.Body.String()
}

func TestHandler_AnswersWhomTheAPIServerAllows(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		authorization, path string
		status, reviews     int
	}{
		"no token":              {"", "/metrics", 401, 0},
		"another scheme":        {"Basic cmVhZGVyOg==", "/metrics", 401, 0},
		"an empty token":        {"Bearer ", "/metrics", 401, 0},
		"a token without end":   {"Bearer " + strings.Repeat("x", maxToken+1), "/metrics", 401, 0},
		"an unknown token":      {"Bearer nobody", "/metrics", 401, 1},
		"a user without rights": {"Bearer stranger", "/metrics", 403, 2},
		"a reader":              {"bearer reader", "/metrics", 200, 2},
		"profiles":              {"Bearer reader", "/debug/pprof/cmdline", 200, 2},
		"profiles for nobody":   {"", "/debug/pprof/heap", 401, 0},
		"the level for nobody":  {"", "/debug/flags/v", 401, 0},
		"nothing there":         {"Bearer reader", "/other", 404, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReviewer(t)
			h, _ := guarded(t, r)
			status, body := ask(t, h, http.MethodGet, test.path, test.authorization, "")
			if status != test.status || len(r.asked) != test.reviews {
				t.Errorf("status %d after %q, want %d after %d", status, r.asked, test.status, test.reviews)
			}
			if status != http.StatusOK && strings.Contains(body, "some_metric") {
				t.Error("metrics for a stranger")
			}
		})
	}
}

func TestHandler_AsksAboutTheUserPathAndVerbOnce(t *testing.T) {
	t.Parallel()
	r := newReviewer(t)
	h, _ := guarded(t, r)
	for range 3 {
		if status, body := ask(t, h, http.MethodGet, "/metrics", "Bearer reader", ""); status != http.StatusOK ||
			!strings.Contains(body, "some_metric 1") {
			t.Fatalf("status %d: %s", status, body)
		}
	}
	if len(r.rights) != 1 {
		t.Fatalf("asked %q", r.asked)
	}
	spec := r.rights[0]
	if spec.User != "reader" || spec.UID != "1" || len(spec.Groups) != 1 || len(spec.Extra["k"]) != 1 ||
		*spec.NonResourceAttributes != (authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"}) {
		t.Errorf("asked about %+v", spec)
	}
	ask(t, h, http.MethodPut, "/debug/flags/v", "Bearer reader", "3")
	ask(t, h, http.MethodGet, "/metrics", "Bearer stranger", "")
	ask(t, h, http.MethodGet, "/metrics", "Bearer stranger", "")
	if len(r.rights) != 4 {
		t.Errorf("what is allowed once is allowed elsewhere, or what is refused is remembered: %q", r.asked)
	}
}

func TestHandler_RefusesWhileTheAPIServerDoes(t *testing.T) {
	t.Parallel()
	r := newReviewer(t)
	r.refuses = true
	h, _ := guarded(t, r)
	if status, body := ask(t, h, http.MethodGet, "/metrics", "Bearer reader", ""); status != 500 ||
		body != "Internal Server Error\n" {
		t.Errorf("status %d: %s", status, body)
	}
}

func TestHandler_SetsTheLevel(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		method, body string
		status, want int
	}{
		"a level":        {http.MethodPut, "4\n", 200, 4},
		"one too high":   {http.MethodPut, "8", 400, 2},
		"no number":      {http.MethodPut, "debug", 400, 2},
		"nothing":        {http.MethodPut, "", 400, 2},
		"a long text":    {http.MethodPut, strings.Repeat("1", 1<<20), 400, 2},
		"another method": {http.MethodPost, "4", 405, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, l := guarded(t, newReviewer(t))
			if status, body := ask(t, h, test.method, "/debug/flags/v", "Bearer reader", test.body); status != test.status ||
				l.now != test.want {
				t.Errorf("status %d and level %d, want %d and %d: %s", status, l.now, test.status, test.want, body)
			}
		})
	}
}

func TestMetrics_ServesNothingElse(t *testing.T) {
	t.Parallel()
	h := Metrics(prometheus.NewRegistry())
	for path, want := range map[string]int{"/metrics": 200, "/debug/pprof/": 404, "/debug/flags/v": 404} {
		if status, _ := ask(t, h, http.MethodGet, path, "", ""); status != want {
			t.Errorf("%s: status %d, want %d", path, status, want)
		}
	}
}
