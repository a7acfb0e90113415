package manager

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"go.uber.org/zap/zapcore"
	"k8s.io/apiserver/pkg/server/routes"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/logs/json"
	"k8s.io/klog/v2/textlogger"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
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

// jsonLogger writes one object a line, as Kubernetes' own programs do.
func jsonLogger(level int, out io.Writer) (logr.Logger, routes.StringFlagSetterFunc) {
	stream := zapcore.Lock(zapcore.AddSync(out))
	log, control := json.NewJSONLogger(logsapi.VerbosityLevel(level), stream, nil, nil) //nolint:gosec // 0 to 5
	return log, setter(func(level int) {
		_ = control.SetVerbosityLevel(uint32(level)) //nolint:gosec // the same
	})
}

// logStart writes the first line.
func logStart(ctx context.Context, name string, flags *pflag.FlagSet) {
	given := []string{}
	flags.Visit(func(f *pflag.Flag) { given = append(given, "--"+f.Name+"="+f.Value.String()) })
	info := contract.CurrentBuild()
	logr.FromContextOrDiscard(ctx).Info("Starting "+name, "version", info.Version, "commit", info.Commit, "flags", given)
}
