package manager

import (
	"fmt"
	"io"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2/textlogger"
)

// maxVerbosity is the highest log level. From level 8 on client-go, which logs through the same logger, writes the
// bodies of requests and answers, and with them the data of Secrets.
const maxVerbosity = 5

// checkVerbosity rejects a level out of range.
func checkVerbosity(level int) error {
	if level < 0 || level > maxVerbosity {
		return FlagError{fmt.Errorf("-v %d: use a level from 0 to %d; higher levels would log the data of Secrets",
			level, maxVerbosity)}
	}
	return nil
}

// newLogger returns a logger that writes to out, up to a level that is at most maxVerbosity.
func newLogger(level int, out io.Writer) logr.Logger {
	return textlogger.NewLogger(textlogger.NewConfig(textlogger.Verbosity(min(level, maxVerbosity)),
		textlogger.Output(out)))
}
