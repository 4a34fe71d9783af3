{{- define "cosyvoice.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels of an object. Arguments: the root, the component. */}}
{{- define "cosyvoice.labels" -}}
{{- $root := index . 0 -}}
{{ include "cosyvoice.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* Labels by which a component's pods are found. */}}
{{- define "cosyvoice.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ $root.Chart.Name }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "cosyvoice.serverImage" -}}
{{- $flavour := ternary "gpu" "cpu" .Values.server.gpu.enabled -}}
{{- with .Values.server.image -}}
{{ .repository }}:{{ .tag | default (printf "%s-%s" $.Chart.AppVersion $flavour) }}
{{- end -}}
{{- end -}}

{{- define "cosyvoice.frontImage" -}}
{{- with .Values.front.image -}}
{{ .repository }}:{{ .tag | default (printf "%s-front" $.Chart.AppVersion) }}
{{- end -}}
{{- end -}}

{{/* Name of the claim of a volume. Arguments: the root, the volume's name. */}}
{{- define "cosyvoice.claim" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $model := and (eq $name "engines") $root.Values.server.gpu.model -}}
{{- $made := printf "%s-%s" (include "cosyvoice.fullname" $root) $name -}}
{{- if $model -}}
{{- $made = printf "%s-%s" $made (regexReplaceAll "[^a-z0-9]+" (lower $model) "-") | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- (index $root.Values.volumes $name).existingClaim | default $made -}}
{{- end -}}

{{/* Fails where fewer pods are the most than are the fewest. Arguments: the component's name, its autoscaling. */}}
{{- define "cosyvoice.checkPods" -}}
{{- $name := index . 0 -}}
{{- with index . 1 -}}
{{- if gt (int64 .min) (int64 .max) -}}
{{- fail (printf "%s.autoscaling.min: %d is more than %s.autoscaling.max: %d" $name (int64 .min) $name (int64 .max)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
