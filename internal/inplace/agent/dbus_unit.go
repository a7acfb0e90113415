package agent

import (
	"context"
	"errors"
	"fmt"
)

// Unit is what systemd has loaded of a service.
type Unit struct {
	// UnitFiles are the file of the unit and its drop-ins, in the order in which systemd has read them.
	UnitFiles []string
	// EnvironmentFiles and Unset are its settings EnvironmentFile= and UnsetEnvironment=.
	EnvironmentFiles, Unset []string
	// IsOutdated reports whether unit files have changed since systemd has read them.
	IsOutdated bool
}

// Unit asks systemd for a service.
func (s *Services) Unit(ctx context.Context, name string) (Unit, error) {
	if err := s.Ready(); err != nil {
		return Unit{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	properties, err := s.connection.GetAllPropertiesContext(ctx, name+service)
	if err != nil {
		return Unit{}, fmt.Errorf("asking systemd for %s: %w", name, err)
	}
	return unitOf(properties)
}

// unitOf reads the properties of a service, as D-Bus has them.
func unitOf(properties map[string]any) (u Unit, err error) {
	fragment, found := properties["FragmentPath"].(string)
	dropIns, dropInsFound := properties["DropInPaths"].([]string)
	unset, unsetFound := properties["UnsetEnvironment"].([]string)
	files, filesFound := properties["EnvironmentFiles"].([][]any)
	outdated, outdatedFound := properties["NeedDaemonReload"].(bool)
	if !found || !dropInsFound || !unsetFound || !filesFound || !outdatedFound {
		return Unit{}, errors.New("asking systemd for a service: an answer of another form")
	}
	u = Unit{UnitFiles: append([]string{fragment}, dropIns...), Unset: unset, IsOutdated: outdated}
	for _, file := range files { // a path, and whether it may be missing
		if name, isText := file[0].(string); isText {
			u.EnvironmentFiles = append(u.EnvironmentFiles, name)
		}
	}
	return u, nil
}
