package mgmt

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// tokenSeconds is how long the token of ServiceAccountConfig is valid: a day, longer than a test or a demo lasts.
const tokenSeconds = 24 * 60 * 60

// Names of the product in config/default.
const (
	SystemNamespace = "capi-proxy-patcher-system"
	ManagerAccount  = "capi-proxy-patcher-manager"
)

// InstallProduct applies config/default of the repository at root, see ApplyKustomize, and returns the configuration of
// the manager's ServiceAccount.
func (c *Cluster) InstallProduct(ctx context.Context, root string) (*rest.Config, error) {
	if err := c.ApplyKustomize(ctx, filepath.Join(root, "config", "default")); err != nil {
		return nil, err
	}
	return ServiceAccountConfig(ctx, c.config, SystemNamespace, ManagerAccount)
}

// ServiceAccountConfig returns a configuration that authenticates with a token of an existing ServiceAccount, as a Pod
// would. It may do what RBAC allows that ServiceAccount, and nothing more. admin is the configuration of who asks for
// it.
func ServiceAccountConfig(ctx context.Context, admin *rest.Config, namespace, name string) (*rest.Config, error) {
	clients, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return nil, fmt.Errorf("requesting a token for ServiceAccount %s/%s: %w", namespace, name, err)
	}
	request := &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(tokenSeconds))},
	}
	response, err := clients.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("requesting a token for ServiceAccount %s/%s: %w", namespace, name, err)
	}
	config := rest.AnonymousClientConfig(admin)
	config.BearerToken = response.Status.Token
	return config, nil
}

// Kubeconfig returns a kubeconfig for a configuration of this package: that of Config or of ServiceAccountConfig.
// It contains the key or token, so a file with it belongs to its owner alone; see WriteKubeconfig.
func Kubeconfig(config *rest.Config) ([]byte, error) {
	const name = "mgmt"
	text, err := clientcmd.Write(clientcmdapi.Config{
		CurrentContext: name,
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		Clusters: map[string]*clientcmdapi.Cluster{name: {
			Server:                   config.Host,
			CertificateAuthorityData: config.CAData,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{name: {
			ClientCertificateData: config.CertData,
			ClientKeyData:         config.KeyData,
			Token:                 config.BearerToken,
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("encoding kubeconfig: %w", err)
	}
	return text, nil
}

// WriteKubeconfig writes the Kubeconfig of a configuration to a file of mode 0600.
func WriteKubeconfig(path string, config *rest.Config) error {
	text, err := Kubeconfig(config)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return fmt.Errorf("writing kubeconfig: %w", err)
	}
	return nil
}
