//go:build node

// Command probe is both ends of a connection inside a test node. It is
// linked statically, like the programs of Kubernetes, and trusts what Go
// finds on the node.
//
//	probe serve ADDRESS [CERTIFICATE KEY]
//	probe get URL
//	probe count
//
// Without a certificate it serves plain HTTP. count prints the time, in milliseconds since 1970, ten times a second.
package main

import (
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"
)

const (
	readTimeout = 5 * time.Second
	getTimeout  = 10 * time.Second
	// countInterval is the time between two lines of count.
	countInterval = 100 * time.Millisecond
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "serve":
		return serve(args[1], "", "")
	case len(args) == 4 && args[0] == "serve":
		return serve(args[1], args[2], args[3])
	case len(args) == 1 && args[0] == "count":
		for now := range time.Tick(countInterval) {
			if _, err := fmt.Println(now.UnixMilli()); err != nil { //nolint:forbidigo // that is what it is for
				return err
			}
		}
		return nil
	case len(args) == 2 && args[0] == "get":
		return get(args[1])
	default:
		return errors.New("usage: probe serve ADDRESS [CERTIFICATE KEY] | probe get URL | probe count")
	}
}

// serve answers every request with status 204.
func serve(address, certificate, key string) error {
	server := &http.Server{
		Addr: address, ReadHeaderTimeout: readTimeout,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }),
	}
	log.Print("serving")
	if certificate == "" {
		return server.ListenAndServe()
	}
	return server.ListenAndServeTLS(certificate, key)
}

// get fails unless the server is trusted and answers as serve does.
func get(url string) error {
	client := &http.Client{Timeout: getTimeout}
	response, err := client.Get(url) //nolint:noctx,gosec // the client has a timeout; the URL is an argument of the test
	if err != nil {
		return err
	}
	if err := response.Body.Close(); err != nil {
		return err
	}
	if response.StatusCode != http.StatusNoContent {
		return fmt.Errorf("getting %s: status %s", url, response.Status)
	}
	return nil
}
