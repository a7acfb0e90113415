package nodeagent

import (
	"bufio"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// watchHeap is when garbage is collected while nothing but comparisons happens, in bytes. The start of the program
// leaves 4 MiB that are used.
const watchHeap = 12 << 20

// settle gives back the memory that only the start of the program needed: of its heap, and the pages of its file, most
// of which hold code and tables of other commands. A page that is needed again is read again. On a kernel that cannot
// do that the pages stay until memory is short.
func settle() {
	debug.FreeOSMemory()
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(watchHeap)
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	mappings, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer func() { _ = mappings.Close() }()
	for lines := bufio.NewScanner(mappings); lines.Scan(); {
		fields := strings.Fields(lines.Text()) // range, permissions, offset, device, inode, path
		if len(fields) < 6 || fields[5] != program || strings.Contains(fields[1], "w") {
			continue
		}
		from, to, _ := strings.Cut(fields[0], "-")
		start, _ := strconv.ParseUint(from, 16, 64)
		end, _ := strconv.ParseUint(to, 16, 64)
		// Without MADV_RANDOM the pages around each page that is read come back with it.
		for _, advice := range []uintptr{unix.MADV_PAGEOUT, unix.MADV_RANDOM} {
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(start), uintptr(end-start), advice)
		}
	}
}
