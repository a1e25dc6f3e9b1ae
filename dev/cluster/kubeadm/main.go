// What kind's nodes need besides: the name it is called by says which.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubeadm "k8s.io/kubernetes/cmd/kubeadm/app"
	kubeadmerrors "k8s.io/kubernetes/cmd/kubeadm/app/util/errors"
)

func main() {
	switch name := filepath.Base(os.Args[0]); name {
	case "kubeadm":
		kubeadmerrors.HandleError(kubeadm.Run())
	case "kube-proxy":
		os.Exit(cli.Run(proxy.NewProxyCommand()))
	default:
		fmt.Fprintf(os.Stderr, "called as %q: link it to kubeadm or kube-proxy\n", name)
		os.Exit(2)
	}
}
