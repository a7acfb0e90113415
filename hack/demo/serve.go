package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
)

// serve runs the management cluster and the manager until ctx ends. It prints its progress and, when the manager is
// ready, readyLine.
func serve(ctx context.Context, dir, binary string, out io.Writer) (err error) {
	progress := func(text string) { _, _ = fmt.Fprintln(out, text) }
	cluster, err := mgmt.Start(ctx, mgmt.Options{Progress: progress})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	if err := mgmt.WriteKubeconfig(kubeconfigFile(dir), cluster.Config()); err != nil {
		return err
	}
	progress("installing capi-proxy-patcher: kubectl apply -k config/default")
	config, err := cluster.InstallProduct(ctx, ".")
	if err != nil {
		return err
	}
	managerKubeconfig := filepath.Join(dir, "manager.kubeconfig")
	if err := mgmt.WriteKubeconfig(managerKubeconfig, config); err != nil {
		return err
	}
	defer func() { _ = os.Remove(managerKubeconfig) }()
	webhooks, err := mgmt.PrepareWebhooks(filepath.Join("config", "default"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, webhooks.Close()) }()
	progress("starting the manager as its ServiceAccount, with the rights of config/rbac and no more")
	manager, health, err := startManager(ctx, dir, binary,
		"--kubeconfig", managerKubeconfig, "--webhook-bind-address", webhooks.Host, "--webhook-port",
		strconv.Itoa(webhooks.Port), "--webhook-cert-dir", webhooks.CertDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, endManager(manager)) }()
	if err := waitHealthy(ctx, "http://"+health+"/readyz"); err != nil {
		return err
	}
	if err := cluster.Install(ctx, webhooks.Configurations...); err != nil {
		return err
	}
	progress(readyLine)
	<-ctx.Done()
	return nil
}

// startManager starts the program that users run. It logs to manager.log.
func startManager(ctx context.Context, dir, binary string, flags ...string) (*exec.Cmd, string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	health := listener.Addr().String()
	if err := listener.Close(); err != nil {
		return nil, "", err
	}
	log, err := os.Create(filepath.Join(dir, "manager.log")) //nolint:gosec // the user names the folder
	if err != nil {
		return nil, "", err
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), binary, append([]string{"manager", "--health-addr", health, "--diagnostics-address", "0"}, flags...)...) //nolint:gosec // the program to show
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, "", fmt.Errorf("starting the manager: %w", err)
	}
	return cmd, health, nil
}

func endManager(cmd *exec.Cmd) error {
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("ending the manager: %w", err)
	}
	return nil
}

func waitHealthy(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if response, err := http.DefaultTransport.RoundTrip(request); err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return errors.New("the manager did not get ready in 30 s")
		case <-time.After(100 * time.Millisecond):
		}
	}
}
