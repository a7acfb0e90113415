package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

// answer is the webhook's answer to a write.
type answer struct {
	operations []patch.Operation
	// warnings are shown to the user by kubectl.
	warnings []string
}

// errInternal is all that a client is told about an error.
var errInternal = errors.New("please check the manager's logs for errors")

// handler serves admission requests for one kind.
func (w *Webhook) handler(kind string) http.Handler {
	handle := func(ctx context.Context, request admission.Request) admission.Response {
		result, err := w.admit(ctx, kind, &request.AdmissionRequest)
		response := admission.Allowed("").WithWarnings(result.warnings...)
		if err == nil && len(result.operations) > 0 {
			response.PatchType = new(admissionv1.PatchTypeJSONPatch)
			response.Patch, err = patch.EncodePatch(result.operations)
		}
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Answering admission request")
			return admission.Errored(http.StatusInternalServerError, errInternal)
		}
		return response
	}
	return neverDenying{&admission.Webhook{Handler: admission.HandlerFunc(handle)}}
}

// neverDenying answers with an HTTP error where controller-runtime denies a write because of an error or a panic: the
// failurePolicy of the webhook configuration, which applies to errors only, then decides about the write.
type neverDenying struct{ http.Handler }

// ServeHTTP implements http.Handler.
func (h neverDenying) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.Handler.ServeHTTP(reviewWriter{w}, r)
}

// reviewWriter receives an AdmissionReview in one call of Write.
type reviewWriter struct{ http.ResponseWriter }

// Write implements io.Writer.
func (w reviewWriter) Write(text []byte) (int, error) {
	var review admissionv1.AdmissionReview
	if r := &review; json.Unmarshal(text, r) == nil && r.Response != nil && !r.Response.Allowed {
		status, message := int(r.Response.Result.Code), r.Response.Result.Message
		if status >= http.StatusInternalServerError {
			message = errInternal.Error() // that of a panic may have anything
		}
		http.Error(w.ResponseWriter, message, status)
		return len(text), nil
	}
	w.Header().Set("Content-Type", "application/json")
	return w.ResponseWriter.Write(text) //nolint:wrapcheck // it is that of the connection
}
