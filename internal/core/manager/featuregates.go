package manager

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
)

// featurePriorityQueue makes the controller reconcile changed Clusters before Clusters that are only due by a resync.
const featurePriorityQueue = "PriorityQueue"

// features are all feature gates with their defaults.
func features() map[string]bool { return map[string]bool{featurePriorityQueue: true} }

func (o *Options) addFeatureFlags(f *pflag.FlagSet) {
	o.FeatureGates = map[string]bool{}
	f.Var(cliflag.NewMapStringBool(&o.FeatureGates), "feature-gates",
		"comma-separated NAME=true or NAME=false: "+featurePriorityQueue+" (BETA, default true) reconciles Clusters that "+
			"changed before Clusters that are only due by --sync-period")
}

// enabled reports whether a feature is.
func (o *Options) enabled(feature string) bool {
	if set, is := o.FeatureGates[feature]; is {
		return set
	}
	return features()[feature]
}

func (o *Options) checkFeatures() error {
	known := features()
	for _, name := range slices.Sorted(maps.Keys(o.FeatureGates)) {
		if _, is := known[name]; !is {
			return usagef("--feature-gates: there is no feature %q; there are %s", name,
				strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
	}
	return nil
}
