package diagnostics

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// rememberTime is how long an allowed request is not asked for again.
	rememberTime = time.Minute
	// maxRemembered is how many allowed requests are remembered.
	maxRemembered = 1000
	// maxToken is the size of a token in bytes; that of a ServiceAccount has about 1,000.
	maxToken = 8 << 10
	// reviewTime is how long the API server may take.
	reviewTime = 10 * time.Second
	// qps and burst limit the requests that clients with any token can cause.
	qps, burst = 10, 20
)

// Access asks the API server who a bearer token belongs to (TokenReview) and whether that user may use the path
// (SubjectAccessReview with nonResourceURLs).
//
// controller-runtime's filter does the same with the server library of Kubernetes, which makes the program 10 MB
// larger: 56.7 instead of 46.1 MB.
type Access struct {
	reviews client.Client
	allowed *utilcache.LRUExpireCache
}

// NewAccess returns an Access that uses the API server of config.
func NewAccess(config *rest.Config, httpClient *http.Client) (*Access, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(authenticationv1.AddToScheme(scheme), authorizationv1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("registering reviews: %w", err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(authenticationv1.SchemeGroupVersion.WithKind("TokenReview"), meta.RESTScopeRoot)
	mapper.Add(authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview"), meta.RESTScopeRoot)
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = qps, burst
	reviews, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper, HTTPClient: httpClient})
	if err != nil {
		return nil, fmt.Errorf("setting up reviews: %w", err)
	}
	return &Access{reviews: reviews, allowed: utilcache.NewLRUExpireCache(maxRemembered)}, nil
}

// request is what is remembered: the hash of a token and what it was allowed.
type request struct {
	token      [sha256.Size]byte
	verb, path string
}

// guard calls handler for allowed requests only.
func (a *Access) guard(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		token = strings.TrimSpace(token)
		if !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > maxToken {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		asked := request{sha256.Sum256([]byte(token)), strings.ToLower(r.Method), r.URL.Path}
		if _, known := a.allowed.Get(asked); !known {
			ctx, cancel := context.WithTimeout(r.Context(), reviewTime)
			defer cancel()
			switch status, err := a.review(ctx, token, asked); {
			case err != nil:
				ctrl.LoggerFrom(ctx).Error(err, "Reviewing a request for diagnostics", "path", asked.path)
				fallthrough
			case status != http.StatusOK:
				http.Error(w, http.StatusText(status), status)
				return
			}
			a.allowed.Add(asked, struct{}{}, rememberTime)
		}
		handler.ServeHTTP(w, r)
	})
}

// review returns the status for a request that is not remembered.
func (a *Access) review(ctx context.Context, token string, asked request) (int, error) {
	who := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if err := a.reviews.Create(ctx, who); err != nil {
		return http.StatusInternalServerError, fmt.Errorf("creating TokenReview: %w", err)
	}
	user := who.Status.User
	if !who.Status.Authenticated || user.Username == "" {
		return http.StatusUnauthorized, nil
	}
	may := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: asked.path, Verb: asked.verb},
	}}
	for key, values := range user.Extra {
		if may.Spec.Extra == nil {
			may.Spec.Extra = map[string]authorizationv1.ExtraValue{}
		}
		may.Spec.Extra[key] = authorizationv1.ExtraValue(values)
	}
	if err := a.reviews.Create(ctx, may); err != nil {
		return http.StatusInternalServerError, fmt.Errorf("creating SubjectAccessReview: %w", err)
	}
	if !may.Status.Allowed || may.Status.Denied {
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}
