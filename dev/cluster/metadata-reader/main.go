// Reads a file of device metadata as programs in containers do, with the reader of a Kubernetes
// release: prints what it found as JSON, or says why it is wrong.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/dynamic-resource-allocation/api/metadata/v1alpha1"
	"k8s.io/dynamic-resource-allocation/devicemetadata"
)

func main() {
	found := &v1alpha1.DeviceMetadata{}
	if err := devicemetadata.DecodeMetadataFromStream(json.NewDecoder(os.Stdin), found); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	json.NewEncoder(os.Stdout).Encode(found)
}
