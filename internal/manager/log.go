package manager

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/klog/v2/textlogger"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/contract"
)

// maxVerbosity is the highest log level. From level 8 on client-go, which logs through the same logger, writes the
// bodies of requests and answers, and with them the data of Secrets.
const maxVerbosity = 5

// Formats of logs.
const (
	formatText = "text"
	formatJSON = "json"
)

// Logging configures the logs.
type Logging struct {
	// Verbosity is the log level, 0 to 5.
	Verbosity int
	// Format is text or json; empty means text.
	Format string
}

func (o *Logging) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.Format, "logging-format", formatText, "format of the logs: text or json")
	f.IntVarP(&o.Verbosity, "v", "v", 2, "log level, 0 to 5")
}

func (o Logging) check() error {
	if o.Format != formatText && o.Format != formatJSON {
		return usagef("--logging-format %q: use text or json", o.Format)
	}
	if err := checkVerbosity(o.Verbosity); err != nil {
		return FlagError{err}
	}
	return nil
}

// checkVerbosity rejects a level out of range.
func checkVerbosity(level int) error {
	if level < 0 || level > maxVerbosity {
		return fmt.Errorf("-v %d: use a level from 0 to %d; higher levels would log the data of Secrets", level, maxVerbosity)
	}
	return nil
}

// setter returns a function that sets a level within the range, given as text.
func setter(set func(level int)) routes.StringFlagSetterFunc {
	return func(text string) (string, error) {
		level, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil {
			return "", errors.New("the level is not a number")
		}
		if err := checkVerbosity(level); err != nil {
			return "", err
		}
		set(level)
		return fmt.Sprintf("successfully set log level to %d\n", level), nil
	}
}

// logger returns a logger that writes to out, and a function that sets its level, at most maxVerbosity.
func (o Logging) logger(out io.Writer) (logr.Logger, routes.StringFlagSetterFunc) {
	level := min(o.Verbosity, maxVerbosity)
	if o.Format == formatJSON {
		return jsonLogger(level, out)
	}
	config := textlogger.NewConfig(textlogger.Verbosity(level), textlogger.Output(out))
	return textlogger.NewLogger(config), setter(func(level int) { setText(config.Verbosity(), level) })
}

// setText sets the level of klog's text logger, which takes every number.
func setText(value flag.Value, level int) { _ = value.Set(strconv.Itoa(level)) }

// jsonLogger writes one object a line with the fields of Kubernetes' own programs.
func jsonLogger(level int, out io.Writer) (logr.Logger, routes.StringFlagSetterFunc) {
	threshold := &slog.LevelVar{}
	set := func(level int) { threshold.Set(slog.Level(-level)) }
	set(level)
	handler := slog.NewJSONHandler(out, &slog.HandlerOptions{AddSource: true, Level: threshold, ReplaceAttr: asKubernetes})
	return logr.FromSlogHandler(handler), setter(set)
}

// asKubernetes renames the fields of every line, and has values print themselves as in the text format.
func asKubernetes(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 {
		switch a.Key {
		case slog.TimeKey:
			return slog.Float64("ts", float64(a.Value.Time().UnixMicro())/1000)
		case slog.SourceKey:
			source, _ := a.Value.Any().(*slog.Source)
			if source == nil {
				return slog.Attr{}
			}
			return slog.String("caller", source.File+":"+strconv.Itoa(source.Line))
		case slog.LevelKey:
			if level, _ := a.Value.Any().(slog.Level); level <= slog.LevelInfo {
				return slog.Int("v", int(-level))
			}
			return slog.Attr{} // an error
		}
	}
	switch v := a.Value.Any().(type) {
	case logr.Marshaler:
		a.Value = slog.AnyValue(v.MarshalLog())
	case error:
		a.Value = slog.StringValue(v.Error())
	case slog.LogValuer:
	case fmt.Stringer:
		a.Value = slog.StringValue(v.String())
	}
	return a
}

// logStart writes the first line.
func logStart(ctx context.Context, name string, flags *pflag.FlagSet) {
	given := []string{}
	flags.Visit(func(f *pflag.Flag) { given = append(given, "--"+f.Name+"="+f.Value.String()) })
	info := contract.CurrentBuild()
	logr.FromContextOrDiscard(ctx).Info("Starting "+name, "version", info.Version, "commit", info.Commit, "flags", given)
}
