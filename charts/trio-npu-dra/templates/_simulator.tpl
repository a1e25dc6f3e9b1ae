{{- /*
Adds the simulated board to the pod of the driver, as kustomize adds k8s/overlays/simulator.
Takes a list of the root and the pod's spec.
*/ -}}
{{- define "npu-dra.addBoard" -}}
{{- $root := first . -}}
{{- $spec := last . -}}
{{- $container := first $spec.containers -}}
{{- $patch := first (include "npu-dra.read" (list $root "overlays/simulator/board.yaml") | fromYaml).objects -}}
{{- $added := $patch.spec.template.spec -}}
{{- range $board := $added.initContainers -}}
{{- $_ := set $board "image" $container.image -}}
{{- $_ := set $board "imagePullPolicy" $container.imagePullPolicy -}}
{{- range $variable := $board.env -}}
{{- if eq $variable.name "PROFILE" -}}
{{- $_ := set $variable "value" $root.Values.simulator.profile -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $_ := set $spec "initContainers" $added.initContainers -}}
{{- $_ := set $spec "nodeSelector" (merge $added.nodeSelector $spec.nodeSelector) -}}
{{- $_ := set $spec "volumes" (concat $added.volumes $spec.volumes) -}}
{{- $patched := first $added.containers -}}
{{- $_ := set $container "volumeMounts" (concat $patched.volumeMounts $container.volumeMounts) -}}
{{- $env := $patched.env -}}
{{- $replaced := list -}}
{{- range $env }}{{ $replaced = append $replaced .name }}{{ end -}}
{{- range $variable := $container.env -}}
{{- if not (has $variable.name $replaced) }}{{ $env = append $env $variable }}{{ end -}}
{{- end -}}
{{- $_ := set $container "env" $env -}}
{{- end }}
