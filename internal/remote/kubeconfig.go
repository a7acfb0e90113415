package remote

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// RefusedError is a kubeconfig that this product does not connect with.
type RefusedError struct{ why string }

// Error implements error. The text names the Secret and the field, and is for the user.
func (e *RefusedError) Error() string { return e.why }

func refused(secret client.ObjectKey, why string) error {
	return &RefusedError{fmt.Sprintf("reading kubeconfig of Secret %s: %s", secret, why)}
}

// KubeconfigName returns the Secret with the kubeconfig of a Cluster.
func KubeconfigName(cluster client.ObjectKey) client.ObjectKey {
	return client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.Name + "-kubeconfig"}
}

// RESTConfig returns how to connect to the workload cluster of a Cluster, by its Secret with a kubeconfig. A user of
// one namespace may have written the Secret: a kubeconfig is refused that needs more than one https server and its own
// data.
func RESTConfig(ctx context.Context, reader client.Reader, cluster client.ObjectKey) (*rest.Config, error) {
	secret, key := &corev1.Secret{}, KubeconfigName(cluster)
	if err := reader.Get(ctx, key, secret); err != nil {
		return nil, err //nolint:wrapcheck // it is the reader
	}
	// The texts of errors may have secrets.
	kubeconfig, err := clientcmd.Load(secret.Data["value"])
	if err != nil {
		return nil, refused(key, "key value cannot be parsed")
	}
	if why := refuse(kubeconfig); why != "" {
		return nil, refused(key, why)
	}
	config, err := clientcmd.NewDefaultClientConfig(*kubeconfig, nil).ClientConfig()
	if err != nil {
		return nil, refused(key, "it cannot be used")
	}
	return config, nil
}

// identityOf identifies the server that a config connects to.
func identityOf(config *rest.Config) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", config.Host, config.ServerName, config.CAData))
	return string(sum[:])
}

// refuse returns why nobody connects with a kubeconfig, or "". It refuses files and programs, which are those of the
// manager's Pod or of a user's machine: a file could be a token. It connects to nothing but the server, by TLS, and
// sends requests only to who has a certificate of the kubeconfig's own authority. A proxy of the kubeconfig would get
// a request in plain text, whatever listens there. tls-server-name, impersonation, tokens and passwords reach only
// that server, and are used.
func refuse(config *clientcmdapi.Config) string {
	const embed = "field %s would read a file of the machine that connects; embed the data instead"
	for _, cluster := range config.Clusters {
		server, err := url.Parse(cluster.Server)
		switch {
		case cluster.CertificateAuthority != "":
			return fmt.Sprintf(embed, "certificate-authority")
		case cluster.ProxyURL != "":
			return "field proxy-url would send requests to a proxy that the kubeconfig names; name a proxy in the environment"
		case cluster.InsecureSkipTLSVerify:
			return "field insecure-skip-tls-verify is refused; give certificate-authority-data"
		case err != nil || server.Scheme != "https" || server.Host == "":
			return "field server is not an https URL"
		case len(cluster.CertificateAuthorityData) == 0:
			return "field certificate-authority-data is missing"
		}
	}
	for _, user := range config.AuthInfos {
		switch {
		case user.ClientCertificate != "":
			return fmt.Sprintf(embed, "client-certificate")
		case user.ClientKey != "":
			return fmt.Sprintf(embed, "client-key")
		case user.TokenFile != "":
			return fmt.Sprintf(embed, "tokenFile")
		case user.Exec != nil:
			return "field exec would run a program where the kubeconfig is used; embed a certificate or a token"
		case user.AuthProvider != nil:
			return "field auth-provider would run a plugin where the kubeconfig is used; embed a certificate or a token"
		}
	}
	return ""
}
