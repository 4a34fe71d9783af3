{{/* The pod of the Job that fetches a checkpoint. */}}
{{- define "cosyvoice.fetchPod" -}}
metadata:
  labels: {{- include "cosyvoice.selector" (list . "fetch") | nindent 4 }}
spec:
  {{- include "cosyvoice.podSecurity" . | nindent 2 }}
  {{- include "cosyvoice.placement" (merge (pick .Values.server "serviceAccountName") .Values.fetch) | nindent 2 }}
  restartPolicy: OnFailure
  containers:
    - name: fetch
      image: {{ include "cosyvoice.serverImage" . }}
      imagePullPolicy: {{ .Values.server.image.pullPolicy }}
      # Stage 0, and without a GPU stage 1. Engines for a GPU are made by the first server that has one.
      command: [bash, run.sh, "0", {{ ternary "0" "1" .Values.server.gpu.enabled | quote }}]
      env: {{- include "cosyvoice.serverEnvironment" . | nindent 8 }}
      securityContext: {{- include "cosyvoice.containerSecurity" . | nindent 8 }}
      resources: {{- toYaml .Values.fetch.resources | nindent 8 }}
      volumeMounts: {{- include "cosyvoice.serverMounts" . | nindent 8 }}
  volumes: {{- include "cosyvoice.serverVolumes" . | nindent 4 }}
{{- end -}}
