// Command demo shows the main job on a real API server: it starts a management cluster, installs the product as users
// do, applies a Cluster with the label, and prints what changed and what a node gets. It needs KUBEBUILDER_ASSETS;
// make demo sets it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capi-proxy-patcher/capi-proxy-patcher/internal/core/contract"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/mgmt"
	"github.com/capi-proxy-patcher/capi-proxy-patcher/test/ports"
)

func main() {
	keep := flag.Bool("keep", false, "leave everything running until Ctrl-C")
	end := flag.Bool("stop", false, "end the demo that runs with this folder, and wait until its processes have ended")
	dir := flag.String("dir", ".demo", "folder for the kubeconfig and logs")
	binary := flag.String("manager", "bin/capi-proxy-patcher", "the program to show")
	flag.Parse()
	ctrl.SetLogger(logr.Discard()) // the manager logs for itself
	ctx, cancel := untilSignal()
	var err error
	if *end {
		err = stop(*dir)
	} else {
		err = demo(ctx, *dir, *binary, *keep)
	}
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// untilSignal returns a context that ends with Ctrl-C, with the terminal, and when nobody reads the output any more.
// None of them ends the process before it has ended those that it started.
func untilSignal() (context.Context, context.CancelFunc) {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGPIPE}
	if !signal.Ignored(syscall.SIGHUP) { // nohup
		signals = append(signals, syscall.SIGHUP)
	}
	return signal.NotifyContext(context.Background(), signals...)
}

// demo runs the whole show.
func demo(ctx context.Context, dir, binary string, keep bool) (err error) {
	start := time.Now()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	running, err := claim(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, running.Close()) }()
	kubeconfig, err := filepath.Abs(filepath.Join(dir, "kubeconfig"))
	if err != nil {
		return err
	}
	cluster, err := mgmt.Start(ctx, mgmt.Options{Progress: step})
	if err != nil {
		return err
	}
	defer func() {
		step("stopping everything")
		err = errors.Join(err, cluster.Stop(), os.Remove(kubeconfig))
	}()
	if err := mgmt.WriteKubeconfig(kubeconfig, cluster.Config()); err != nil {
		return err
	}
	webhooks, err := mgmt.PrepareWebhooks(filepath.Join("config", "default"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, webhooks.Close()) }()
	manager, err := startManager(ctx, cluster, webhooks, dir, binary)
	if err != nil {
		return err
	}
	defer func() {
		_ = manager.Process.Signal(syscall.SIGTERM) // Ctrl-C has stopped it already
		err = errors.Join(err, manager.Wait())
	}()
	if err := cluster.Install(ctx, webhooks.Configurations...); err != nil {
		return err
	}
	if err := show(ctx, kubeconfig, binary); err != nil {
		return fmt.Errorf("hack/demo/show.sh: %w", err)
	}
	fmt.Printf("\nDone in %.0f s.\n", time.Since(start).Seconds())
	if keep {
		fmt.Printf("Everything is running until Ctrl-C or make demo-stop. Look around in another terminal:\n\n"+
			"  export KUBECONFIG=%s\n"+
			"  kubectl -n demo get cluster,kubeadmcontrolplane,kubeadmconfigtemplate,secret\n\n", kubeconfig)
		<-ctx.Done()
	}
	return nil
}

// show runs what a user does, with the kubectl of KUBEBUILDER_ASSETS.
func show(ctx context.Context, kubeconfig, binary string) error {
	program, err := filepath.Abs(binary)
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, filepath.Join("hack", "demo", "show.sh"), program) //nolint:gosec // the program to show
	command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig,
		"PATH="+os.Getenv("KUBEBUILDER_ASSETS")+string(filepath.ListSeparator)+os.Getenv("PATH"))
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	return command.Run()
}

func step(text string) { fmt.Println("==> " + text) }

// startManager installs the product, starts the program that users run, and waits until it is ready. It logs to
// manager.log.
func startManager(ctx context.Context, cluster *mgmt.Cluster, webhooks *mgmt.Webhooks, dir, binary string,
) (*exec.Cmd, error) {
	step("installing capi-proxy-patcher: kubectl apply -k config/default")
	account, err := cluster.InstallProduct(ctx, ".")
	if err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(dir, "manager.kubeconfig")
	if err := mgmt.WriteKubeconfig(kubeconfig, account); err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(kubeconfig) }() // the manager has read it
	health, err := ports.Address(ctx)
	if err != nil {
		return nil, err
	}
	logFile := filepath.Join(dir, "manager.log")
	log, err := os.Create(logFile) //nolint:gosec // the user names the folder
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	step("starting the manager as its ServiceAccount, with the rights of config/rbac and no more")
	manager := exec.CommandContext(context.WithoutCancel(ctx), binary, "manager", "--health-addr", health, //nolint:gosec // the program to show
		"--diagnostics-address", "0", "--leader-elect", "--leader-elect-namespace", contract.Name+"-system",
		"--kubeconfig", kubeconfig, "--webhook-bind-address", webhooks.Host,
		"--webhook-port", strconv.Itoa(webhooks.Port), "--webhook-cert-dir", webhooks.CertDir)
	manager.Stdout, manager.Stderr = log, log
	if err := manager.Start(); err != nil {
		return nil, fmt.Errorf("starting the manager: %w", err)
	}
	err = poll(ctx, "the manager did not get ready; see "+logFile, func() (bool, error) {
		response, err := http.Get("http://" + health + "/readyz") //nolint:noctx // it answers at once or not at all
		if err != nil {
			return false, nil //nolint:nilerr // it does not listen yet
		}
		return response.StatusCode == http.StatusOK, response.Body.Close()
	})
	if err != nil {
		_ = manager.Process.Kill()
		_ = manager.Wait()
	}
	return manager, err
}

// poll calls done until it returns true, for 30 seconds.
func poll(ctx context.Context, problem string, done func() (bool, error)) error {
	for range 300 {
		if ok, err := done(); err != nil || ok {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return errors.New(problem)
}
