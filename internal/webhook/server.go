package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/kinds"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/patch"
)

const (
	// MaxRequest is the largest request that is read, in bytes. etcd takes objects of 1.5 MiB, and an update holds the
	// object twice.
	MaxRequest = 4 << 20
	// maxValues is how many values of JSON a request may have. Decoded, each may take some hundred bytes.
	maxValues = 250_000
	// maxTime is how long a request may take: less than the API server's timeout of 5 s.
	maxTime = 4 * time.Second
)

// answer is the webhook's answer to a write.
type answer struct {
	operations []patch.Operation
	// warnings are shown to the user by kubectl.
	warnings []string
}

// handler serves admission requests for one kind.
//
// A request that cannot be answered gets an HTTP error, not an answer that denies it: the failurePolicy of the webhook
// configuration, which applies to errors only, then decides about the write.
type handler struct {
	webhook *Webhook
	kind    string
}

// ServeHTTP answers one AdmissionReview.
func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), maxTime)
	defer cancel()
	log := ctrl.LoggerFrom(ctx).WithName("webhook")

	request, status, err := readReview(w, r)
	if err != nil {
		log.V(2).Info("Refusing request", "kind", h.kind, "reason", err.Error())
		http.Error(w, err.Error(), status)
		return
	}
	log = log.WithValues("kind", h.kind, "namespace", request.Namespace, "name", request.Name)
	result, err := h.webhook.admit(ctrl.LoggerInto(ctx, log), h.kind, request)
	if err != nil {
		log.Error(err, "Answering admission request")
		http.Error(w, "please check the manager's logs for errors", http.StatusInternalServerError)
		return
	}
	text, err := encode(request, result)
	if err != nil {
		log.Error(err, "Encoding admission response")
		http.Error(w, "please check the manager's logs for errors", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if _, err := w.Write(text); err != nil {
		log.V(2).Info("Writing admission response", "reason", err.Error())
	}
}

// readReview reads an AdmissionReview of version v1. On an error it returns an HTTP status.
func readReview(w http.ResponseWriter, r *http.Request) (*admissionv1.AdmissionRequest, int, error) {
	if r.Method != http.MethodPost {
		return nil, http.StatusMethodNotAllowed, errors.New("method must be POST")
	}
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return nil, http.StatusUnsupportedMediaType, errors.New("content type must be application/json")
	}
	body := bytes.NewBuffer(make([]byte, 0, min(max(r.ContentLength, 0), MaxRequest)+bytes.MinRead))
	if _, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, MaxRequest)); err != nil {
		if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return nil, http.StatusRequestEntityTooLarge, fmt.Errorf("request has more than %d bytes", tooLarge.Limit)
		}
		return nil, http.StatusBadRequest, errors.New("request cannot be read")
	}
	if kinds.HasMore(body.Bytes(), maxValues) {
		return nil, http.StatusRequestEntityTooLarge, fmt.Errorf("request has more than %d values", maxValues)
	}
	request, err := decodeReview(body.Bytes())
	if err != nil {
		return nil, http.StatusBadRequest, err
	}
	return request, http.StatusOK, nil
}

// apiVersion is that of an AdmissionReview.
const apiVersion = "admission.k8s.io/v1"

// decodeReview reads an AdmissionReview.
func decodeReview(text []byte) (*admissionv1.AdmissionRequest, error) {
	var review admissionv1.AdmissionReview
	switch err := kinds.Decode(text, &review); {
	case err != nil:
		return nil, errors.New("request is not an AdmissionReview")
	case review.APIVersion != apiVersion || review.Kind != "AdmissionReview" || review.Request == nil:
		return nil, errors.New("request is not an AdmissionReview of " + apiVersion)
	}
	return review.Request, nil
}

// encode writes the answer to request, which always allows the write.
func encode(request *admissionv1.AdmissionRequest, result answer) ([]byte, error) {
	response := &admissionv1.AdmissionResponse{UID: request.UID, Allowed: true, Warnings: result.warnings}
	if len(result.operations) > 0 {
		operations, err := patch.EncodePatch(result.operations)
		if err != nil {
			return nil, err
		}
		response.Patch, response.PatchType = operations, new(admissionv1.PatchTypeJSONPatch)
	}
	return json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Response: response,
	})
}
