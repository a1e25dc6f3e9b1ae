{{- /*
The manifests are those of k8s/, which the chart has by the link `manifests`. A template
reads a file, changes in its objects what values say, and writes them. So what is added to k8s/ is
in the chart too.
*/ -}}

{{- /*
The objects of a file, as `objects`, with this release's namespace and folders of the node.
The kubelet has its folder for device plugins where it is, whatever its `--root-dir`.
Takes a list of the root and the name of the file below manifests/.
*/ -}}
{{- define "npu-dra.read" -}}
{{- $root := first . -}}
{{- $text := $root.Files.Get (printf "manifests/%s" (last .)) -}}
{{- if not $text -}}
{{- fail (printf "manifests/%s is not in the chart: manifests must be a link to k8s/" (last .)) -}}
{{- end -}}
{{- $text = $text | replace "ascend-dra" $root.Release.Namespace
    | replace "/var/lib/kubelet" $root.Values.kubelet.directory
    | replace (printf "%s/device-plugins" $root.Values.kubelet.directory) "/var/lib/kubelet/device-plugins"
    | replace "/etc/cdi" $root.Values.cdi.directory
    | replace "ascend-npu-dra-kubeletplugin" (include "npu-dra.name" $root) -}}
objects:
{{- range splitList "\n---\n" $text }}
- {{ fromYaml . | toJson }}
{{- end }}
{{- end }}

{{- /* An object with the labels that all of the chart have. Takes a list of the root and the object. */ -}}
{{- define "npu-dra.write" -}}
{{- $root := first . -}}
{{- $object := last . -}}
{{- $labels := dict
    "app.kubernetes.io/name" $root.Chart.Name
    "app.kubernetes.io/instance" $root.Release.Name
    "app.kubernetes.io/managed-by" $root.Release.Service
    "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_") -}}
{{- $_ := set $object.metadata "labels" (merge $labels ($object.metadata.labels | default dict)) -}}
---
{{ toYaml $object }}
{{ end }}

{{- /* All objects of a file, as they are. Takes the same as npu-dra.read. */ -}}
{{- define "npu-dra.copy" -}}
{{- $root := first . -}}
{{- range (include "npu-dra.read" . | fromYaml).objects }}
{{- include "npu-dra.write" (list $root .) }}
{{- end }}
{{- end }}

{{- /* Name of the DaemonSet, its account and roles. */ -}}
{{- define "npu-dra.name" -}}
{{ .Values.nameOverride | default "ascend-npu-dra-kubeletplugin" }}
{{- end }}

{{- /* Name of the driver's image, with digest or tag. */ -}}
{{- define "npu-dra.image" -}}
{{- with .Values.image -}}
{{- if not .repository -}}
{{- fail "image.repository is not set: name the repository to which you pushed the driver's image, or docker.io/library/dra-npu if you loaded it into the nodes" -}}
{{- end -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end }}

{{- /* The driver's flags of `flags`, as `args`; a list or map is one text with commas. */ -}}
{{- define "npu-dra.flags" -}}
{{- $flags := .Values.flags -}}
{{- if and (eq (get $flags "partitioning") "dynamic") (eq (get $flags "sharing") "shares") -}}
{{- fail "flags.partitioning=dynamic and flags.sharing=shares exclude each other: set one of the two" -}}
{{- end -}}
args:
{{- range $name, $value := $flags }}
{{- if kindIs "map" $value }}
{{- $pairs := list }}
{{- range $key, $effect := $value }}
{{- $pairs = append $pairs (printf "%s=%s" $key $effect) }}
{{- end }}
{{- $value = join "," $pairs }}
{{- else if kindIs "slice" $value }}
{{- $value = join "," $value }}
{{- end }}
- {{ printf "--%s=%v" $name $value | quote }}
{{- end }}
{{- end }}
