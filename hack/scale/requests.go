package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
	"time"
)

// requests counts requests by verb and resource, as "create secrets" or "patch clusters/status".
type requests map[string]int

// minus returns the difference.
func (r requests) minus(before requests) requests {
	added := requests{}
	for kind, count := range r {
		if count -= before[kind]; count > 0 {
			added[kind] = count
		}
	}
	return added
}

// writes and reads are their sums. Events are neither.
func (r requests) writes() int {
	return r.sum(func(verb string) bool { return verb != "get" && verb != "list" })
}

func (r requests) reads() int {
	return r.sum(func(verb string) bool { return verb == "get" || verb == "list" })
}

func (r requests) sum(counts func(verb string) bool) int {
	sum := 0
	for kind, count := range r {
		if verb, resource, _ := strings.Cut(kind, " "); counts(verb) && resource != "events" {
			sum += count
		}
	}
	return sum
}

func (r requests) total() int {
	sum := 0
	for _, count := range r {
		sum += count
	}
	return sum
}

// audit counts the requests of ServiceAccounts in the log of the API server, which leaves watches and leases out.
type audit struct {
	path   string
	offset int64
	counts requests
	// last is when the last of them was answered.
	last time.Time
}

// read returns the requests so far.
func (a *audit) read() (requests, error) {
	file, err := os.Open(a.path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	if _, err := file.Seek(a.offset, io.SeekStart); err != nil {
		return nil, err
	}
	if a.counts == nil {
		a.counts = requests{}
	}
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return maps.Clone(a.counts), nil // the rest of the line is still to be written
		}
		if err != nil {
			return nil, err
		}
		a.offset += int64(len(line))
		var event struct {
			Verb           string
			ObjectRef      struct{ Resource, Subresource string }
			StageTimestamp time.Time
		}
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, fmt.Errorf("reading audit log: %w", err)
		}
		if event.ObjectRef.Resource == "" {
			continue // discovery
		}
		a.last = event.StageTimestamp
		a.counts[strings.TrimSuffix(event.Verb+" "+event.ObjectRef.Resource+"/"+event.ObjectRef.Subresource, "/")]++
	}
}
