package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// claim returns a file with the number of this process, which is locked until it is closed or the process ends. It
// fails if another demo has the folder.
func claim(dir string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dir, "pid"), os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // the folder of the demo
	if err != nil {
		return nil, err
	}
	if err = lock(file, syscall.LOCK_NB); err != nil {
		return nil, errors.Join(errors.New("another demo is running: end it with make demo-stop"), file.Close())
	}
	if err = file.Truncate(0); err == nil {
		_, err = file.WriteString(strconv.Itoa(os.Getpid()))
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// stop ends the demo of a folder, and waits until it has ended.
func stop(dir string) error {
	file, err := os.Open(filepath.Join(dir, "pid")) //nolint:gosec // the user names the folder
	if os.IsNotExist(err) || err == nil && lock(file, syscall.LOCK_NB) == nil {
		fmt.Println("no demo is running")
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		return fmt.Errorf("reading %s: %w", file.Name(), err)
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return err
	}
	return lock(file, 0)
}

// lock locks a file for this process alone. It waits for another one, unless how says that it does not.
func lock(file *os.File, how int) error {
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|how)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
