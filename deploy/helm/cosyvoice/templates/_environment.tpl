{{/* Settings of the values as variables. Whole numbers of Helm are floats, of which 1000000 would be 1e+06. */}}
{{- define "cosyvoice.settings" -}}
{{- range $section, $values := . }}
{{- range $key, $value := $values }}
{{- $text := toString $value }}
{{- if kindIs "slice" $value }}{{ $text = join "," $value }}{{ end }}
{{- if kindIs "float64" $value }}{{ if eq $value (floor $value) }}{{ $text = $value | int64 | toString }}{{ end }}{{ end }}
- {name: COSYVOICE_{{ upper $section }}__{{ upper $key }}, value: {{ quote $text }}}
{{- end }}
{{- end }}
{{- end -}}

{{/* Whether servers and fronts share a folder of voices. */}}
{{- define "cosyvoice.voicesFolder" -}}
{{- if and .Values.volumes.voices.persistent (not .Values.bucket.url) }}yes{{ end }}
{{- end -}}

{{/* Variables that tell servers and fronts of the bucket of voices. */}}
{{- define "cosyvoice.bucket" -}}
{{- with .Values.bucket }}
{{- if .url }}
- {name: COSYVOICE_COSYVOICE2__VOICES_URL, value: {{ quote .url }}}
{{- with .endpoint }}
- {name: AWS_ENDPOINT_URL, value: {{ quote . }}}
{{- end }}
{{- with .region }}
- {name: AWS_REGION, value: {{ quote . }}}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Variables that turn spans on. */}}
{{- define "cosyvoice.traces" -}}
{{- with .Values.traces }}
{{- if .endpoint }}
- {name: OTEL_EXPORTER_OTLP_ENDPOINT, value: {{ quote .endpoint }}}
{{- with .env }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Variables of a server: which checkpoint, which settings. */}}
{{- define "cosyvoice.serverEnvironment" -}}
{{- $file := ternary "deploy/gpu.toml" "deploy/cpu.toml" .Values.server.gpu.enabled -}}
{{- with .Values.server -}}
- {name: HOME, value: /opt/cosyvoice/cache}
- {name: FAMILY, value: {{ quote .family }}}
- {name: SOURCE, value: {{ quote .source }}}
- {name: REVISION, value: {{ quote .revision }}}
- {name: CHECKPOINT, value: {{ include "cosyvoice.checkpoint" $ }}}
- {name: COSYVOICE_SETTINGS, value: {{ .settingsFile | default $file | quote }}}
- {name: COSYVOICE_SERVER__HOST, value: {{ quote $.Values.listen }}}
- {name: COSYVOICE_SERVER__DRAIN_TIMEOUT_S, value: {{ .drainSeconds | int64 | quote }}}
- {name: COSYVOICE_SERVER__EXIT_TIMEOUT_S, value: {{ include "cosyvoice.exitSeconds" $ | quote }}}
{{- include "cosyvoice.bucket" $ }}
{{- include "cosyvoice.traces" $ }}
{{- include "cosyvoice.settings" .settings }}
{{- with .env }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Times of a pod that ends: a while until balancers have noticed, the drain, the exit, and some more. */}}
{{- define "cosyvoice.leaveSeconds" -}}10{{- end -}}
{{- define "cosyvoice.exitSeconds" -}}5{{- end -}}
{{- define "cosyvoice.graceSeconds" -}}
{{- add (include "cosyvoice.leaveSeconds" .) .Values.server.drainSeconds (include "cosyvoice.exitSeconds" .) 15 -}}
{{- end -}}

{{/* The checkpoint's directory from the working directory on, as run.sh chooses it. */}}
{{- define "cosyvoice.checkpoint" -}}
{{- $published := dict "cosyvoice2" "CosyVoice2-0.5B" "cosyvoice3" "Fun-CosyVoice3-0.5B" "cosyvoice300m" "CosyVoice-300M" -}}
{{- .Values.server.checkpoint | default (printf "checkpoints/%s" (get $published .Values.server.family)) -}}
{{- end -}}

{{/* Variables of a front. What it reads of section cosyvoice2 has to be the servers'. */}}
{{- define "cosyvoice.frontEnvironment" -}}
{{- $owned := pick .Values.server.settings "cosyvoice2" -}}
{{- with .Values.front -}}
- {name: COSYVOICE_FRONT__HOST, value: {{ quote $.Values.listen }}}
- {name: COSYVOICE_FRONT__GRPC_URL, value: "dns:///{{ include "cosyvoice.fullname" $ }}-server:8001"}
- {name: COSYVOICE_FRONT__API_KEYS_FILE, value: /etc/cosyvoice/{{ .keys.file }}}
- {name: COSYVOICE_FRONT__METRICS_PORT, value: "8081"}
- {name: COSYVOICE_FRONT__LEAVE_S, value: {{ include "cosyvoice.leaveSeconds" $ | quote }}}
- {name: COSYVOICE_FRONT__DRAIN_TIMEOUT_S, value: {{ .drainSeconds | int64 | quote }}}
{{- if .redis.secret }}
- name: COSYVOICE_FRONT__LIMITS_URL
  valueFrom: {secretKeyRef: {name: {{ .redis.secret }}, key: {{ .redis.key }}}}
{{- end }}
{{- include "cosyvoice.bucket" $ }}
{{- include "cosyvoice.traces" $ }}
{{- if include "cosyvoice.voicesFolder" $ }}
- {name: COSYVOICE_FRONT__VOICES_DIR, value: /opt/cosyvoice/voices}
{{- end }}
{{- include "cosyvoice.settings" (merge (dict "front" .settings) $owned) }}
{{- with .env }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end -}}
