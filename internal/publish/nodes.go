package publish

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/finding"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/intent"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/publish/nodes"
)

// Nodes are the files of running nodes. Its argument is the name of a generated Secret. contract.AnnotationPublish
// cannot ask for it; contract.RolloutInPlace does, for each generated Secret of the Cluster.
const Nodes Name = "nodes"

// endNodes ends the name of the Secret that delivers the Cluster's generated Secret. That of a pool has a hash after
// it.
const endNodes = "proxy-nodes"

// nodesPattern matches the name of a Secret that delivers files to nodes.
var nodesPattern = regexp.MustCompile(`^(.+)-` + endNodes + `(-[0-9a-f]{10})?$`)

// nodesSecret returns the Secret that delivers a generated Secret, without content.
func nodesSecret(cluster string, o Output) Secret {
	end := endNodes
	if o.Argument != intent.GeneratedSecretName(cluster) {
		sum := sha256.Sum256([]byte(o.Argument))
		end += "-" + hex.EncodeToString(sum[:])[:10]
	}
	secret := secretOf(cluster, end)
	secret.Delivered = &o
	return secret
}

// OfNodes returns the Secret that delivers a generated Secret to nodes, and the findings about it. Without files it is
// Kept: they are not known yet. in.Key may be new.
func OfNodes(in nodes.Input) (Secret, []finding.Finding, error) {
	o := Output{Name: Nodes, Argument: in.Secret}
	secret := nodesSecret(in.Cluster, o)
	if _, complete := in.Data[contract.KeySetup]; !complete {
		secret.Kept = true
		return secret, nil, nil
	}
	text, err := nodes.Objects(in)
	if err != nil {
		return Secret{}, nil, fmt.Errorf("making output %s: %w", o, err)
	}
	if len(text) > maxSecret {
		secret.Kept = true
		return secret, []finding.Finding{{
			Reason: contract.ReasonTooLarge, Message: fmt.Sprintf("output %s: Secret %s would hold %d bytes, and it can hold "+
				"%d; remove certificates that no node needs from %s", o, secret.Name, len(text), maxSecret, contract.KeyTrustedCA),
		}}, nil
	}
	secret.Data = map[string][]byte{o.key(): text}
	secret.Labels = map[string]string{contract.LabelFilesDigest: nodes.Digest(in.Key, in.Data)}
	secret.Annotations = map[string]string{contract.AnnotationDigestKey: nodes.KeyText(in.Key)}
	return secret, nil, nil
}

// KeptNodes returns the Secret that delivers a generated Secret, to be left as it is.
func KeptNodes(cluster, generated string) Secret {
	secret := nodesSecret(cluster, Output{Name: Nodes, Argument: generated})
	secret.Kept = true
	return secret
}

// deliveredNodes reads Nodes from the annotation of a delivered Secret.
func deliveredNodes(text string) (Output, bool) {
	argument, found := strings.CutPrefix(text, string(Nodes)+"=")
	return Output{Name: Nodes, Argument: argument}, found && argument != ""
}
