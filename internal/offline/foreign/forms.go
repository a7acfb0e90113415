package foreign

import "strings"

// forms is the table of all proxy settings that are read. A line is a mapping: its form, kind, path and keys. The first
// line with a key decides its meaning.
//
// The kind is kind and group of the object, none for a document that is no object, or any: then the path may begin
// anywhere in it. A dot leads to a key of the mapping below, * is any key. An item of a list that has a name is a key
// of that name: the value of {name: A, value: B} is at A. Other items are at the path of their list.
//
// Behind a key is what it means, unless that is its name: a key of a proxy Secret, enabled (false switches off what the
// mapping has), elsewhere (another object has the value), cluster and namespace (of the Cluster), or packed (name of an
// object, which may begin with that of its Cluster).
const forms = `
variables | any | . | HTTP_PROXY=httpProxy HTTPS_PROXY=httpsProxy NO_PROXY=noProxy
variables | any | . | http_proxy=httpProxy https_proxy=httpsProxy no_proxy=noProxy
variables of Kubespray and Sylva | any | . | additional_no_proxy=noProxy no_proxy_additional=noProxy
variables of RKE2 and k3s | any | . | CONTAINERD_HTTP_PROXY=httpProxy CONTAINERD_HTTPS_PROXY=httpsProxy
variables of RKE2 and k3s | any | . | CONTAINERD_http_proxy=httpProxy CONTAINERD_https_proxy=httpsProxy
variables of RKE2 and k3s | any | . | CONTAINERD_NO_PROXY=noProxy CONTAINERD_no_proxy=noProxy
variables of TKG | none | . | TKG_HTTP_PROXY=httpProxy TKG_HTTPS_PROXY=httpsProxy TKG_NO_PROXY=noProxy
variables of TKG | none | . | TKG_PROXY_CA_CERT=trustedCA TKG_HTTP_PROXY_ENABLED=enabled
variables of TKG | none | . | CLUSTER_NAME=cluster NAMESPACE=namespace
install-config of OpenShift | none | . | additionalTrustBundle=trustedCA metadata.name=cluster
httpProxyConfig of AKS | any | httpProxyConfig | httpProxy httpsProxy noProxy trustedCa=trustedCA trustedCA
httpProxyConfig of AKS | any | httpProxyConfig | enabled
configuration of AKS | none | . | httpProxy httpsProxy noProxy trustedCa=trustedCA trustedCA enabled
mapping trust | any | trust | additionalTrustedCAs.*.data=trustedCA additionalTrustedCAs.caCert.content=trustedCA
mapping trust | any | variables.trust | *.data=trustedCA
mapping proxy | any | proxy | http=httpProxy https=httpsProxy no=noProxy additionalNo=noProxy
mapping proxy | any | proxy | httpProxy httpsProxy noProxy enabled
mapping systemProxy | any | systemProxy | http=httpProxy https=httpsProxy no=noProxy noProxy enabled
Proxy of OpenShift | Proxy.config.openshift.io | spec | httpProxy httpsProxy noProxy readinessEndpoints
Proxy of OpenShift | Proxy.config.openshift.io | spec | trustedCA.name=elsewhere
mapping with httpProxy | any | . | httpProxy httpsProxy noProxy
mapping with httpProxy | any | . | http-proxy=httpProxy https-proxy=httpsProxy no-proxy=noProxy
Cluster | Cluster.cluster.x-k8s.io | metadata | name=cluster namespace
Cluster of EKS Anywhere | Cluster.anywhere.eks.amazonaws.com | metadata | name=cluster namespace
TanzuKubernetesCluster | TanzuKubernetesCluster.run.tanzu.vmware.com | metadata | name=cluster namespace
Secret | Secret | metadata | name=packed namespace
ConfigMap | ConfigMap | metadata | name=packed namespace
`

// row is one key of one form. The key is the last depth elements of its path.
type row struct {
	form, kind, key, meaning string
	path                     []string
	depth                    int
}

func rows() (all []row) {
	for line := range strings.SplitSeq(strings.TrimSpace(forms), "\n") {
		column := strings.Split(line, " | ")
		for word := range strings.FieldsSeq(column[3]) {
			key, meaning, renamed := strings.Cut(word, "=")
			if !renamed {
				meaning = key
			}
			path := strings.Split(strings.TrimLeft(column[2]+"."+key, "."), ".")
			all = append(all, row{column[0], column[1], key, meaning, path, strings.Count(key, ".") + 1})
		}
	}
	return all
}
