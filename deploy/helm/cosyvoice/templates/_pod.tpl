{{/* What every pod of the chart is denied and given. */}}
{{- define "cosyvoice.podSecurity" -}}
automountServiceAccountToken: false
# Otherwise variables with the addresses of Services would be taken for settings.
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The Secret with the credentials of the bucket, as variables. */}}
{{- define "cosyvoice.credentials" -}}
{{- if and .Values.bucket.url .Values.bucket.secret -}}
envFrom:
  - secretRef: {name: {{ .Values.bucket.secret }}}
{{- end }}
{{- end -}}

{{- define "cosyvoice.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* Where the pods of a component go, by its values. */}}
{{- define "cosyvoice.placement" -}}
serviceAccountName: {{ .serviceAccountName }}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .topologySpreadConstraints }}
topologySpreadConstraints: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{/* The values of servers, of which those with a model of GPU go to its nodes alone. */}}
{{- define "cosyvoice.serverPlacement" -}}
{{- $values := deepCopy .Values.server -}}
{{- with .Values.server.gpu.model -}}
{{- $_ := set $values "nodeSelector" (set $values.nodeSelector "nvidia.com/gpu.product" .) -}}
{{- end -}}
{{- include "cosyvoice.placement" $values -}}
{{- with .Values.server.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- end -}}

{{/* Places that a server writes to; all else of its image can't be written. */}}
{{- define "cosyvoice.serverVolumes" -}}
- name: shm
  emptyDir: {medium: Memory, sizeLimit: {{ .Values.server.sharedMemory }}}
{{- range list "build" "cache" "logs" "tmp" }}
- name: {{ . }}
  emptyDir: {}
{{- end }}
{{- range $name, $volume := .Values.volumes }}
- name: {{ $name }}
  {{- if and $volume.persistent (or (ne $name "voices") (include "cosyvoice.voicesFolder" $)) }}
  persistentVolumeClaim: {claimName: {{ include "cosyvoice.claim" (list $ $name) }}}
  {{- else }}
  emptyDir: {}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "cosyvoice.serverMounts" -}}
- {name: shm, mountPath: /dev/shm}
- {name: tmp, mountPath: /tmp}
{{- range list "build" "cache" "checkpoints" "engines" "logs" "voices" }}
- {name: {{ . }}, mountPath: /opt/cosyvoice/{{ . }}}
{{- end }}
{{- end -}}
