// Command cripull makes containerd pull images, as kubelet does: containerd pulls, in its own environment.
//
//	cripull IMAGE...
//
// It prints containerd's answers, one line for each image, and fails if containerd rejects one.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	socket  = "unix:///run/containerd/containerd.sock"
	timeout = time.Minute
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "cripull:", err)
		os.Exit(1)
	}
}

func run(images []string) error {
	connection, err := grpc.NewClient(socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	client := runtimeapi.NewImageServiceClient(connection)
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var errs []error
	for _, image := range images {
		response, err := client.PullImage(ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: image}})
		if err != nil {
			errs = append(errs, err)
			continue
		}
		fmt.Println("pulled", image, response.ImageRef)
	}
	return errors.Join(errs...)
}
