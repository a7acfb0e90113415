package publish

import (
	"fmt"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/finding"
)

// Nodes are the files of running nodes. Its argument is the name of a generated Secret. contract.AnnotationPublish
// cannot ask for it; contract.RolloutInPlace does, for each generated Secret of the Cluster.
const Nodes Name = "nodes"

// nodesSecret returns the objects for nodes of a generated Secret, without content.
func nodesSecret(o Output) Secret {
	return Secret{Name: string(Nodes), Output: string(Nodes), Delivered: &o}
}

// OfNodes returns the objects that bring a generated Secret to nodes, and the findings about them. Without files it is
// Kept: they are not known yet.
func OfNodes(in NodeFiles) (Secret, []finding.Finding, error) {
	o := Output{Name: Nodes, Argument: in.Secret}
	secret := nodesSecret(o)
	if !HasNodeFiles(in.Data) {
		secret.Kept = true
		return secret, nil, nil
	}
	text, err := in.Objects()
	if err != nil {
		return Secret{}, nil, fmt.Errorf("making output %s: %w", o, err)
	}
	if len(text) > maxSecret {
		secret.Kept = true
		return secret, []finding.Finding{{
			Reason: contract.ReasonTooLarge, Message: fmt.Sprintf("output %s: its objects would have %d bytes, and can have "+
				"%d; remove certificates that no node needs from %s", o, len(text), maxSecret, contract.KeyTrustedCA),
		}}, nil
	}
	secret.Data = map[string][]byte{o.key(): text}
	return secret, nil, nil
}

// KeptNodes returns the objects of all generated Secrets, to be left as they are.
func KeptNodes() Secret {
	secret := nodesSecret(Output{Name: Nodes})
	secret.Kept = true
	return secret
}
