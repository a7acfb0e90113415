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

// reads returns the number of gets and lists, and writes that of all others but events.
func (r requests) reads() float64 { return r.sum(true) }

func (r requests) writes() float64 { return r.sum(false) }

func (r requests) sum(reads bool) float64 {
	sum := 0
	for kind, count := range r {
		verb, resource, _ := strings.Cut(kind, " ")
		if resource != "events" && (verb == "get" || verb == "list") == reads {
			sum += count
		}
	}
	return float64(sum)
}

func (r requests) total() float64 {
	sum := 0
	for _, count := range r {
		sum += count
	}
	return float64(sum)
}

// audit counts the requests of ServiceAccounts in the log of the API server, which omits watches and leases.
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
			return maps.Clone(a.counts), nil // the API server has not written the rest of the line yet
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
